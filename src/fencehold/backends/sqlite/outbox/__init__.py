"""Events on SQLite."""
