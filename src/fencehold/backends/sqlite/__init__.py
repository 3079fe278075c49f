"""SQLite 3.35 and newer, from the standard library: the embedded default."""
