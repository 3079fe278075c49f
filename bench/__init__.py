"""The speed promises, measured against real servers: `python -m bench --help`."""
