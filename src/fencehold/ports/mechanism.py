"""How one process becomes the leader: what the election needs of a lease row or of an advisory lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

G = TypeVar("G")
G_contra = TypeVar("G_contra", contravariant=True)


class Unanswered(Exception):
    """A release was not confirmed: others may find the grant in place until it lapses, or until its server notices."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Judgement(Protocol[G_contra]):
    """What an answer means to the election. Asks nobody and never waits."""

    def is_hopeless(self, error: Exception | None) -> bool:
        """Whether no further attempt can help after this error, whatever the retry strategy says."""
        ...

    def is_new_term(self, grant: G_contra) -> bool:
        """Whether a grant that was regained within the grace belongs to another term than the one before it."""
        ...


class Mechanism(Judgement[G], Protocol[G]):
    """`attempt` returns a grant, or None if refused; it raises if the outcome is unknown. Every call has a limit."""

    def attempt(self) -> Coroutine[Any, Any, G | None]: ...

    async def hold(self, grant: G) -> str:
        """Return, with the reason, when the grant is no longer held or its holder was asked to step down."""
        ...

    async def release(self, grant: G, stop: asyncio.Event) -> bool:
        """End the grant locally, then give it back. True when that is done, or when it is meant to lapse by itself.

        With `stop` set the candidate stops, else it steps down and goes on. Raises Unanswered.
        """
        ...

    async def pause(self, delay_s: float, stop: asyncio.Event) -> None:
        """Wait for the delay. Return earlier if `stop` is set, or if an attempt is worth while."""
        ...

    async def close(self) -> None: ...
