"""`fencehold demo`: three processes, a kill, a freeze, and a stale write that is refused."""
