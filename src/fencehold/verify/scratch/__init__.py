"""The scratch place of a run, its own schema or file in the user's database: made, prepared, read, dropped."""
