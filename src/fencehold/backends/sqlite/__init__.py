"""The backend for SQLite 3.35 and newer, through the sqlite3 of the standard library."""
