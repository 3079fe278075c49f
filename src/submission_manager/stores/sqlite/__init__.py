"""The service's tables on SQLite."""
