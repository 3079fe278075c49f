"""Leases and leaders: the tables of what may happen, how epochs count, how long a follower waits."""
