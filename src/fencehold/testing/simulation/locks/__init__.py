"""Three processes compete for one session lock with our own SessionLock, with and without a fencing epoch."""
