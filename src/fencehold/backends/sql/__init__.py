"""What the backends of SQL databases share: statements from files, callers' connections, hints for errors."""
