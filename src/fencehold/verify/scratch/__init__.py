"""The run's own schema or file: made, prepared, read, dropped."""
