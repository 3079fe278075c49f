"""Leader election by PostgreSQL advisory lock: at most one leader at a time."""

from pgleaderlock.errors import ConnectionError, LockError, PgLeaderLockError, ShutdownError  # noqa: A004
from pgleaderlock.lock import LeaderLock
from pgleaderlock.models import Callback, ErrorCallback, LockState, StateChangeCallback
from pgleaderlock.retry import DecorrelatedJitter, ExponentialBackoff, FixedInterval, RetryContext, RetryStrategy

__all__ = [
    "Callback",
    "ConnectionError",
    "DecorrelatedJitter",
    "ErrorCallback",
    "ExponentialBackoff",
    "FixedInterval",
    "LeaderLock",
    "LockError",
    "LockState",
    "PgLeaderLockError",
    "RetryContext",
    "RetryStrategy",
    "ShutdownError",
    "StateChangeCallback",
]
