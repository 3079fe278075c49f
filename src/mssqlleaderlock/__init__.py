"""Leader election by SQL Server application lock: at most one leader at a time."""

from fencehold.model.election.election import LockState
from fencehold.model.election.lock_errors import ConnectionError, LockError, ShutdownError  # noqa: A004 - as in pgleaderlock
from fencehold.model.election.lock_errors import LeaderLockError as MssqlLeaderLockError
from fencehold.model.election.retry import (
    DecorrelatedJitter,
    ExponentialBackoff,
    FixedInterval,
    RetryContext,
    RetryStrategy,
)
from fencehold.runtime.core.callbacks import Callback, ErrorCallback, StateChangeCallback
from mssqlleaderlock.lock import LeaderLock

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
    "MssqlLeaderLockError",
    "RetryContext",
    "RetryStrategy",
    "ShutdownError",
    "StateChangeCallback",
]
