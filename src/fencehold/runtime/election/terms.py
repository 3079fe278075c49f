"""`leader.terms()`: one pass of the loop per term, and what `async with term` does when the term is over already."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, Self, overload

from fencehold.model.errors import ConfigurationError
from fencehold.ports.connections import AsyncConnection, SyncConnection
from fencehold.ports.fence import SyncTransaction, Transaction
from fencehold.runtime.election.term import Guard, Term


class SourceOfTerms(Protocol):
    """What the loop over `terms()` needs of a leader."""

    name: str

    async def _was_started(self) -> bool: ...

    async def _next_term(self, after: Term | None) -> Term | None:
        """Wait for a valid term other than `after`, and return it; None once the leader has stopped."""
        ...


class Terms(AsyncIterator["TermOfLoop"]):
    """Iterates over the current term and each later one; each comes once. Ends when the leader is shut down.

    Raises ConfigurationError (`leader_not_started`) at the first pass if the leader was never started, because such a
    loop would never have a term.
    """

    def __init__(self, leader: SourceOfTerms) -> None:
        self._leader = leader
        self._last: TermOfLoop | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TermOfLoop:
        if self._is_over:
            raise StopAsyncIteration
        if self._last is None:
            await self._check_started()
        term = await self._leader._next_term(self._last.stands_for if self._last is not None else None)
        if term is None:
            self._is_over = True
            raise StopAsyncIteration
        self._last = TermOfLoop(term, self)
        return self._last

    async def aclose(self) -> None:
        """End the loop: there is no later pass, and no `async with term` of this loop waits for another term."""
        self._is_over = True

    async def next_for(self, term: TermOfLoop) -> Term | None:
        """Wait for the term that follows `term`, which ended before its block began, and return it.

        Returns None if this loop has ended, or has moved on to a later term.
        """
        if self._is_over or term is not self._last:
            return None
        return await self._leader._next_term(term.stands_for)

    async def _check_started(self) -> None:
        if not await self._leader._was_started():
            raise ConfigurationError(
                f"The leader {self._leader.name!r} was not started, so it has no terms.",
                hint="Loop inside `async with leader:`, or after `await leader.start()`.",
                code="leader_not_started",
            )


class TermOfLoop(Term):
    """The term that a loop over `terms()` gets: `async with term:` never runs its body for a term that is over.

    A term can end between the start of a pass of the loop and the block. Python cannot skip the body of a block, so the
    block waits for the leader's next term, and this object then represents that next term. The block raises LeaseLost
    instead, without running the body, in two cases. First, if this object had an earlier block or fenced work: that
    work belonged to the ended term, and the next block would not know. Second, if the loop or the leader has ended.
    """

    def __init__(self, term: Term, terms: Terms) -> None:
        self._terms = weakref.ref(terms)  # only the loop keeps it alive: None means that the loop was left
        self._is_begun = False
        self._stand_for(term)

    def _stand_for(self, term: Term) -> None:
        """Make this object represent `term`: it shares that term's lease, fences and bodies."""
        self.stands_for = term
        self._held, self._fences, self._bodies = term._held, term._fences, term._bodies

    async def _until_valid(self) -> None:
        """Return at once if the term is valid. If it is over, wait for the next term and represent that.

        Raises LeaseLost in the two cases that the class names.
        """
        while not self.is_valid:
            await self._go_on()
        self._is_begun = True

    async def _go_on(self) -> None:
        terms = self._terms()
        term = await terms.next_for(self) if terms is not None and not self._is_begun else None
        if self.is_valid:
            return  # a block in another task has waited too, and was first
        if term is None or self._is_begun:
            raise self.lost(self._held.why_over)
        self._stand_for(term)

    # --- fenced work: after it this object stays with its term ---

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        self._is_begun = True
        return super().transaction()

    def _transaction_sync(self) -> AbstractContextManager[SyncTransaction]:
        self._is_begun = True
        return super()._transaction_sync()

    @overload
    def fence(self, connection_or_session: SyncConnection) -> Awaitable[None]: ...
    @overload
    def fence(self, connection_or_session: AsyncConnection) -> Coroutine[Any, Any, None]: ...
    def fence(self, connection_or_session: Any) -> Any:
        self._is_begun = True
        return super().fence(connection_or_session)

    def guard(self) -> Guard:
        self._is_begun = True
        return super().guard()
