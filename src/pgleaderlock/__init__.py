"""Leader election by PostgreSQL advisory lock: at most one leader at a time."""

from typing import TYPE_CHECKING, Any

from pgleaderlock.errors import ConnectionError, LockError, PgLeaderLockError, ShutdownError  # noqa: A004
from pgleaderlock.models import Callback, ErrorCallback, LockState, StateChangeCallback
from pgleaderlock.retry import DecorrelatedJitter, ExponentialBackoff, FixedInterval, RetryContext, RetryStrategy

if TYPE_CHECKING:
    from pgleaderlock.lock import LeaderLock

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


def __getattr__(name: str) -> Any:
    """Import LeaderLock when it is first used, because it needs psycopg.

    So without psycopg the command can still print what is missing. Raises ModuleNotFoundError if psycopg is not
    installed.
    """
    if name != "LeaderLock":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from pgleaderlock.lock import LeaderLock
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise ModuleNotFoundError(
            "LeaderLock needs the driver psycopg: pip install 'fencehold[postgres]'", name=error.name
        ) from None
    globals()[name] = LeaderLock
    return LeaderLock
