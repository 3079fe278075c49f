"""Items on PostgreSQL."""
