"""The service's tables on SQL Server."""
