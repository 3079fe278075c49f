"""Leaders by a lock of a server session (pgleaderlock, mssqlleaderlock)."""
