"""What the backends of SQL databases share: statements from files, connections of callers, advice."""
