"""The rules of leases and leaders: what may happen, how epochs count, and how long a follower waits."""
