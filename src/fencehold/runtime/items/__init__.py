"""`store.items(...)`: one holder per document."""
