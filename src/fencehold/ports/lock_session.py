"""A lock that belongs to a server session: what an election needs of the one connection that holds it."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

from fencehold.ports.fence import FencePort


class ServerSession(Protocol):
    """One connection to a server: how it is identified, waited on and ended."""

    async def rest(self, timeout_s: float) -> None:
        """Wait for `timeout_s`, or until the connection ends."""
        ...

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        """Wait for `timeout_s`, or until the lock may be free, the connection has ended or `stop` is set."""
        ...

    async def close(self) -> None:
        """End the session, which frees all that it holds."""
        ...

    @property
    def birth(self) -> Any | None:
        """Identifies this session, for `evict`. None if that is not known, or if another client may get it next."""
        ...


class LockSession(ServerSession, Protocol):
    """One connection to one lock; every verb ends within its limit."""

    async def try_lock(self, limit_s: float) -> bool: ...

    async def probe(self, limit_s: float) -> bool:
        """Whether this session holds the lock, not only whether its connection works."""
        ...

    async def unlock(self, limit_s: float) -> bool: ...

    async def evict(self, born: Any, limit_s: float) -> bool:
        """End the session that has this `birth`, if it holds the lock. True when that session is gone."""
        ...

    @property
    def expires(self) -> bool:
        """Whether a proof that the lock is held is valid for a limited time only."""
        ...


S_contra = TypeVar("S_contra", bound=LockSession, contravariant=True)


class Companion(Protocol[S_contra]):
    """A fencing epoch beside the lock: a lease that only the lock's holder raises and renews, on its connection."""

    name: str
    holder_id: str
    lease_id: str  # of the lease's row, once it was seized

    @property
    def fences(self) -> FencePort: ...

    async def seize(self, session: S_contra, lease_s: float, limit_s: float) -> int:
        """Take the lease with the next epoch, and return that epoch."""
        ...

    async def resume(self, session: S_contra, epoch: int, lease_s: float, limit_s: float) -> bool:
        """Renew this epoch's lease, if nobody has raised the epoch and the lease has not lapsed; else False."""
        ...

    async def renew(self, session: S_contra, epoch: int, lease_s: float, limit_s: float) -> None:
        """Renew this epoch's lease. Raises if the lease has another epoch."""
        ...

    async def release(self, session: S_contra, epoch: int, limit_s: float) -> None: ...
