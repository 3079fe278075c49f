"""Leaders by a lock that a server session holds (pgleaderlock, mssqlleaderlock)."""
