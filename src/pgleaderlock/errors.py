"""What can go wrong with a lock, as spec 002 names it."""

from __future__ import annotations


class PgLeaderLockError(Exception):
    """Base exception for all pgleaderlock errors."""


class ConnectionError(PgLeaderLockError):  # noqa: A001 - the public name of spec 002
    """Failed to establish or maintain a database connection."""


class LockError(PgLeaderLockError):
    """Failed to acquire or release the advisory lock."""


class HopelessError(LockError):
    """No retry can mend that: the lock stops, whatever the retry strategy says."""


class PoolerError(HopelessError):
    """A pooler between us and the server would hand the lock's session to others."""


class ShutdownError(PgLeaderLockError):
    """Shutdown did not finish in time; the connection was dropped, which frees the lock."""
