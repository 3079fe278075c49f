"""Items on SQLite: runs the statements of sql/items/."""
