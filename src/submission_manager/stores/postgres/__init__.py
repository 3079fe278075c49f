"""The service's tables on PostgreSQL."""
