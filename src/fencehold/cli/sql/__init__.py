"""`fencehold sql`: the tables and rights as SQL for an administrator."""
