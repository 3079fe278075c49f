"""Items on PostgreSQL: runs the statements of sql/items/."""
