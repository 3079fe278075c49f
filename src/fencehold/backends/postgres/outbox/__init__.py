"""Events on PostgreSQL."""
