"""What an election needs of the one server connection that holds its lock."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

from fencehold.ports.fence import FencePort


class ServerSession(Protocol):
    """One connection to a server: a session that can be identified, waited on and ended."""

    async def rest(self, timeout_s: float) -> None:
        """Wait for `timeout_s`; return earlier if the connection ends."""
        ...

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        """Wait for `timeout_s`; return earlier if the lock may be free, the connection has ended, or `stop` is set."""
        ...

    async def close(self) -> None:
        """End the session on the server, which frees all locks that it holds."""
        ...

    @property
    def birth(self) -> Any | None:
        """Return a value that identifies this session, to be passed to `evict`.

        None if it is not known, or if a pooler may give the session to another client next.
        """
        ...


class LockSession(ServerSession, Protocol):
    """One connection to a server that takes one lock. Every verb ends within its limit."""

    async def try_lock(self, limit_s: float) -> bool: ...

    async def probe(self, limit_s: float) -> bool:
        """Return whether this session holds the lock. A working connection alone is not enough."""
        ...

    async def unlock(self, limit_s: float) -> bool: ...

    async def evict(self, born: Any, limit_s: float) -> bool:
        """End the session whose `birth` is `born`, if it holds the lock.

        Return True when that session is gone, else False.
        """
        ...

    @property
    def expires(self) -> bool:
        """Return whether the lock counts as held only for a limited time after the last successful probe."""
        ...


S_contra = TypeVar("S_contra", bound=LockSession, contravariant=True)


class Companion(Protocol[S_contra]):
    """A fencing epoch for a lock: a lease row that only the lock's holder takes and renews.

    All its statements run on the lock's own connection.
    """

    name: str
    holder_id: str
    lease_id: str  # of the lease's row, once it was seized

    @property
    def fences(self) -> FencePort: ...

    async def seize(self, session: S_contra, lease_s: float, limit_s: float) -> int:
        """Take the lease over, whatever its expiry, with the next epoch, and return that epoch.

        Needs the lock to be held.
        """
        ...

    async def resume(self, session: S_contra, epoch: int, lease_s: float, limit_s: float) -> bool:
        """Renew this epoch's lease and return True.

        False if the lease has another epoch by now, or has lapsed.
        """
        ...

    async def renew(self, session: S_contra, epoch: int, lease_s: float, limit_s: float) -> None:
        """Renew this epoch's lease. Raises LockError if the lease has another epoch."""
        ...

    async def release(self, session: S_contra, epoch: int, limit_s: float) -> None: ...
