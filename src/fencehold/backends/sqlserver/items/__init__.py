"""Items on SQL Server."""
