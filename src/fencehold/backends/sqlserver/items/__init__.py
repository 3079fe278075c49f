"""Items on SQL Server: runs the statements of sql/items/."""
