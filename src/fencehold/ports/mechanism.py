"""How one process becomes the leader: what the election needs of a lease row or of an advisory lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

G = TypeVar("G")


class Mechanism(Protocol[G]):
    """`attempt` answers a grant (yes), None (no) or raises (don't know). Nothing here may block without a limit."""

    def attempt(self) -> Coroutine[Any, Any, G | None]: ...

    async def hold(self, grant: G) -> str:
        """Return, with the reason, when the grant is no longer held or its holder was asked to step down."""
        ...

    async def release(self, grant: G) -> bool:
        """Local state first; True when it was given back, or is sure to lapse by itself."""
        ...

    async def pause(self, delay_s: float, stop: asyncio.Event, *, heed_hints: bool) -> None:
        """Wait for the delay, but no longer than until `stop`, or until an attempt is worth while."""
        ...

    def another_led(self, grant: G) -> bool:
        """Whether somebody else led between our last grant and this one."""
        ...

    async def close(self) -> None: ...
