"""How one process becomes the leader: what the election needs of a lease row or of an advisory lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

G = TypeVar("G")


class Unanswered(Exception):
    """A release was not confirmed: others may find the grant in place until it lapses, or until its server notices."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Mechanism(Protocol[G]):
    """`attempt` answers a grant (yes), None (no) or raises (don't know). Nothing here may block without a limit."""

    def attempt(self) -> Coroutine[Any, Any, G | None]: ...

    async def hold(self, grant: G) -> str:
        """Return, with the reason, when the grant is no longer held or its holder was asked to step down."""
        ...

    async def release(self, grant: G) -> bool:
        """Local state first; True when it was given back, or was to lapse by itself. Raises Unanswered."""
        ...

    async def pause(self, delay_s: float, stop: asyncio.Event, *, heed_hints: bool) -> None:
        """Wait for the delay, but no longer than until `stop`, or until an attempt is worth while."""
        ...

    def is_new_term(self, grant: G) -> bool:
        """Whether a grant that was regained within the grace belongs to another term than the one before it."""
        ...

    async def close(self) -> None: ...
