"""Events on SQL Server."""
