"""The simulation of locks: three processes compete for one session lock with our own SessionLock.

Some of the schedules have a fencing epoch beside the lock, some have none.
"""
