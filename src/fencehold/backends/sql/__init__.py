"""Shared by the backends of SQL databases: statements from files, callers' connections, hints for errors."""
