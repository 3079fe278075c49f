"""The errors of a lock, under the names of spec 002."""

from fencehold.model.election.lock_errors import (
    ConnectionError,  # noqa: A004 - the public name of spec 002
    HopelessError,
    LockError,
    PoolerError,
    ShutdownError,
)
from fencehold.model.election.lock_errors import LeaderLockError as PgLeaderLockError

__all__ = ["ConnectionError", "HopelessError", "LockError", "PgLeaderLockError", "PoolerError", "ShutdownError"]
