"""The file of a SQLite database: its rights, its file system, and whether it is still the one opened."""
