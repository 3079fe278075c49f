"""Items on SQLite."""
