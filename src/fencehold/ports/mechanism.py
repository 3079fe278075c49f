"""What an election needs of the mechanism that makes one process the leader: a lease row, or a database lock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

G = TypeVar("G")
G_contra = TypeVar("G_contra", contravariant=True)


class Unanswered(Exception):
    """Raised when the store did not confirm a release.

    Others may find the lease or lock still held, until it lapses or the server notices the end of the session.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Judgement(Protocol[G_contra]):
    """What an answer of the store means to the election. Neither method asks the store or waits."""

    def is_hopeless(self, error: Exception | None) -> bool:
        """Return whether this error means that no further attempt can succeed, whatever the retry strategy says."""
        ...

    def is_new_term(self, grant: G_contra) -> bool:
        """Return whether this grant belongs to another term than the grant before it.

        It is asked about a grant that was regained after a broken connection, within the grace period.
        """
        ...


class Mechanism(Judgement[G], Protocol[G]):
    """One way to become the leader. A grant is the store's yes to an attempt: a lease or a held lock.

    `attempt` returns a grant, or None if refused; it raises if the outcome is unknown. Every call has a time limit.
    """

    def attempt(self) -> Coroutine[Any, Any, G | None]: ...

    async def hold(self, grant: G) -> str:
        """Wait until the grant is no longer held, or its holder was asked to step down. Return the reason."""
        ...

    async def release(self, grant: G, stop: asyncio.Event) -> bool:
        """End the grant in this process, then give it back to the store.

        Returns True when it was given back, or when it is meant to lapse by itself. With `stop` set the candidate is
        stopping; else it steps down and goes on as a follower. Raises Unanswered if the store did not confirm.
        """
        ...

    async def pause(self, delay_s: float, stop: asyncio.Event) -> None:
        """Wait for the delay. Return earlier if `stop` is set, or if the lease or lock may be free."""
        ...

    async def close(self) -> None: ...
