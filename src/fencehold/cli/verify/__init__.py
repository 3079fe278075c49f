"""`fencehold verify`: tests the guarantees on the user's own database."""
