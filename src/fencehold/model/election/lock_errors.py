"""The errors of a lock that a database session holds, with the names of spec 002; the same on every database."""

from __future__ import annotations

from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable, redact

__all__ = [
    "LeaderLockError", "ConnectionError", "LockError", "HopelessError", "PoolerError", "ShutdownError", "as_lock_error",
    "as_outage",
]  # fmt: skip


class LeaderLockError(Exception):
    """Base of all errors of a leader lock."""


class ConnectionError(LeaderLockError):  # noqa: A001 - the public name of spec 002
    """The connection to the database could not be made, or broke."""


class LockError(LeaderLockError):
    """The lock could not be taken or released."""


class HopelessError(LockError):
    """A failure that no retry can repair: the lock stops, whatever the retry strategy returns."""


class PoolerError(HopelessError):
    """A pooler, or the driver's own pool, would give the lock's session to other clients."""


class ShutdownError(LeaderLockError):
    """Shutdown did not finish in time; the connection was dropped, which frees the lock."""


def as_lock_error(error: Exception, lost: tuple[type[Exception], ...] = ()) -> Exception:
    """Return a driver's error as one of the lock's errors, without secrets.

    `lost`: the driver's classes of errors that mean a broken connection.
    """
    if isinstance(error, (ConnectionError, LockError)):
        return error
    if isinstance(error, FenceholdError):
        kind = HopelessError if isinstance(error, ConfigurationError) else ConnectionError
        return kind(f"{error.message} {error.hint}".strip())
    return (ConnectionError if isinstance(error, (*lost, OSError, TimeoutError)) else LockError)(text_of(error))


def as_outage(fault: Exception, where: str) -> Unavailable:
    """Return the error to log for an attempt that failed and will be repeated.

    `where` names the server; it must hold no secret.
    """
    if isinstance(fault, ConnectionError):
        what, code = f"The lock's database ({where}) cannot be used", "unreachable"
        hint = "Check the address, and that the server runs; it is tried again until it answers."
    else:
        what, code = f"The lock cannot be asked for ({where})", "lock_failed"
        hint = "It is tried again until it works."
    return Unavailable(f"{what}: {text_of(fault)}", hint=hint, code=code)


def text_of(error: Exception) -> str:
    """Return the text of `error` on one line, without secrets and never empty."""
    return redact(" ".join(str(error).split())) or type(error).__name__
