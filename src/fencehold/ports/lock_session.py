"""A lock that belongs to a server session: what an election needs of the one connection that holds it."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

from fencehold.ports.fence import FencePort


class LockSession(Protocol):
    """One connection to one lock; every verb ends within its limit."""

    async def try_lock(self, limit_s: float) -> bool: ...

    async def probe(self, limit_s: float) -> bool:
        """Whether this session holds the lock: possession, not only life."""
        ...

    async def unlock(self, limit_s: float) -> bool: ...

    async def evict(self, born: Any, limit_s: float) -> bool:
        """End the session that was born then, if it holds the lock; True when it is gone."""
        ...

    async def rest(self, timeout_s: float) -> None:
        """Nothing to do for so long, or until the connection ends."""
        ...

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        """Nothing to do for so long, or until the lock may be free or the connection has ended."""
        ...

    async def close(self) -> None:
        """The end of the session, which frees whatever it holds."""
        ...

    @property
    def expires(self) -> bool:
        """Whether a proof of possession counts for a time only."""
        ...

    @property
    def birth(self) -> Any | None:
        """Which session this is, for `evict`; None when it cannot be told, or may be another client's next."""
        ...


S_contra = TypeVar("S_contra", bound=LockSession, contravariant=True)


class Companion(Protocol[S_contra]):
    """A fencing epoch beside the lock: a lease that its holder alone raises and keeps, on the lock's own connection."""

    name: str
    holder_id: str
    lease_id: str  # of the lease's row, once it was seized

    @property
    def fences(self) -> FencePort: ...

    async def seize(self, session: S_contra, lease_s: float, limit_s: float) -> int:
        """The next epoch."""
        ...

    async def resume(self, session: S_contra, epoch: int, lease_s: float, limit_s: float) -> bool:
        """Renew this epoch's lease, if nobody has raised the epoch and the lease has not lapsed; else False."""
        ...

    async def renew(self, session: S_contra, epoch: int, lease_s: float, limit_s: float) -> None:
        """Raises when the epoch is no longer the lease's."""
        ...

    async def release(self, session: S_contra, epoch: int, limit_s: float) -> None: ...
