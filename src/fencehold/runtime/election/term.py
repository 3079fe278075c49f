"""One term of a leader: the fencing token, the cancel scope and the fence, for the code that leads."""

from __future__ import annotations

import asyncio
import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, overload

from fencehold.model.errors import ConfigurationError, FenceholdError, LeaseLost, Uncertain
from fencehold.ports.connections import AsyncConnection, Connection, SyncConnection
from fencehold.ports.fence import FencePort, GuardText, SyncTransaction, Transaction
from fencehold.ports.time_limit import TimeLimit
from fencehold.runtime.core.block_kinds import AsyncBlock, AsyncTransactionBlock, PlainTransactionBlock
from fencehold.runtime.core.cancel_scope import CancelScope
from fencehold.runtime.core.keeper_thread import post_to
from fencehold.runtime.election.keeper import IN_WORDS, NOT_AWAITED, HeldLease
from fencehold.runtime.election.pending_fence import NOT_AWAITED_HINT, PendingFence, called_on, sync_needed


class TermBody(CancelScope):
    """One running `async with term:` block, and the task that runs it, which is cancelled when the term ends.

    `fenced` lists the caller's connections and sessions with a transaction that this block has fenced.
    """

    def __init__(self) -> None:
        super().__init__("the term of office is over")
        self.fenced: list[object] = []


class TermBodies:
    """The `async with term:` bodies that are running now.

    The bodies are cancelled when the term ends, and awaited before its lease is given back. The event `over` is set, on
    the bodies' event loop, once the term has ended.
    """

    def __init__(self, held: HeldLease) -> None:
        self.over = asyncio.Event()
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._inside: list[TermBody] = []
        self._empty = asyncio.Event()
        self._empty.set()
        held.bodies = self
        held.on_change(self._changed)

    def enter(self) -> None:
        self._inside.append(TermBody())
        self._empty.clear()

    def leave(self) -> TermBody:
        """Remove and return the innermost body of the current task, because it ends now."""
        body = next(b for b in reversed(self._inside) if b.task is asyncio.current_task())
        self._inside.remove(body)
        if not self._inside:
            self._empty.set()
        return body

    def remember(self, target: object) -> list[TermBody]:
        """Record that this task fences a transaction on `target`. If the task's body is cancelled, it must not commit.

        Returns the bodies for which `target` is new; give these to `forget`.
        """
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop in this thread, and so no body
            return []
        new = [b for b in self._inside if b.task is task and all(target is not one for one in b.fenced)]
        for body in new:
            body.fenced.append(target)
        return new

    @staticmethod
    def forget(target: object, bodies: list[TermBody]) -> None:
        """Undo `remember` for these bodies, because the connection cannot be fenced."""
        for body in bodies:
            body.fenced = [one for one in body.fenced if one is not target]

    async def left(self, limit_s: float) -> bool:
        """Wait until no body is running any more. Returns True then, False if one still is after `limit_s`."""
        try:
            async with TimeLimit(limit_s):
                return await self._empty.wait()
        except TimeoutError:
            return False

    def soon(self, call: Callable[[], object]) -> None:
        """Have `call` called on the event loop of the bodies. Callable on any thread; takes no lock."""
        called_on(self._loop, call)

    def _changed(self) -> None:
        """Cancel all bodies, on their event loop, if the lease has ended.

        Called on any thread when the lease has changed.
        """
        if self._held.ended_because:
            post_to(self._loop, self._cancel)  # on a closed loop no body is running

    def _cancel(self) -> None:
        self.over.set()
        for body in self._inside:
            body.cancel()


class Guard:
    """A condition for the WHERE of ONE statement, which then writes only while the epoch holds. `check` its result.

    `sql` has the driver's own parameter style, `text` that of SQLAlchemy; `params` are the values for either.
    """

    def __init__(self, term: Term, text: GuardText) -> None:
        self._term = term
        self._text = text

    @property
    def sql(self) -> str:
        return self._text.sql

    @property
    def text(self) -> str:
        return self._text.text

    @property
    def params(self) -> Mapping[str, Any]:
        return self._text.params

    def __str__(self) -> str:
        return self.sql

    def check(self, result: Any) -> None:
        """Raise unless the guarded statement changed a row. Takes a cursor or a row count.

        If no row was changed, this asks the store whether the lease is still held, and blocks this thread for one
        renewal's round trip. Raises LeaseLost if it is not held. Raises ConfigurationError (`guard_matched_nothing`)
        if it is held: the statement's own condition matched nothing, or it ran on another database than the store's;
        the term goes on. Raises Uncertain if no answer comes in time. Raises ConfigurationError (`rowcount_unknown`)
        if the driver does not know how many rows changed.
        """
        count = result if isinstance(result, int) else getattr(result, "rowcount", None)
        # sqlite3 counts a statement WITH a CTE as -1, and one with RETURNING as 0 until its rows are fetched.
        unsure = type(result).__module__ == "sqlite3" and getattr(result, "description", None) is not None
        if not isinstance(count, int) or count < 0 or (count == 0 and unsure):
            raise ConfigurationError(
                "The driver does not say how many rows this statement changed.",
                hint="Fetch its rows and give their number: guard.check(len(rows)); in a pipeline of psycopg, sync it "
                "first. Or use term.transaction().",
                code="rowcount_unknown",
            )
        if count == 0:
            raise self._term._changed_nothing(self._text)


class TermFields(ABC):
    """The fields of a term that the async and the sync Term share. None of them does I/O."""

    @property
    @abstractmethod
    def _lease(self) -> HeldLease: ...

    @property
    def name(self) -> str:
        return self._lease.key.name

    @property
    def holder_id(self) -> str:
        return self._lease.key.holder_id

    @property
    def epoch(self) -> int:
        """The fencing token: higher than that of every earlier term of this lease."""
        return self._lease.key.epoch

    @property
    def expires_at(self) -> dt.datetime:
        """When the lease expires, by the store's clock, as of the last renewal."""
        return self._lease.lease.expires_at

    @property
    def is_valid(self) -> bool:
        return self._lease.is_valid

    @property
    def remaining_s(self) -> float:
        """Seconds until the local deadline, if no further renewal succeeds; 0 once the term is over."""
        return self._lease.remaining_s

    @property
    def ended_because(self) -> str | None:
        return self._lease.ended_because or None

    def check(self) -> None:
        """Raise LeaseLost unless the term is valid at this instant."""
        if not self.is_valid:
            raise self.lost(self._lease.why_over)

    def lost(self, why: str) -> LeaseLost:
        """End the term locally, and return the LeaseLost for the caller to raise."""
        if self._lease.is_inherited:
            return self._of_parent()
        self._lease.end(why)
        words = IN_WORDS.get(why, why)
        return LeaseLost(f"Lease {self.name!r} epoch {self.epoch}: {words}.", name=self.name, epoch=self.epoch)

    def _of_parent(self) -> LeaseLost:
        return LeaseLost(
            f"Lease {self.name!r} epoch {self.epoch}: this term belongs to the parent process, and a forked child has "
            "no part in it. Nothing that the child writes under it is committed.",
            hint="Connect anew in the child, or do this in the parent.",
            name=self.name,
            epoch=self.epoch,
        )


class Term(AsyncBlock, TermFields):
    """One term of a leader, from the store's grant of the lease to its end.

    The term is valid until a local deadline that falls before the store's own expiry; `is_valid` never does I/O. `async
    with term:` cancels its body when the term ends. It suppresses that cancellation, and a LeaseLost of this same term,
    because the end of a term is not an error of the program. If the term is over already, the body does not run: the
    block raises LeaseLost, or, in a loop over `leader.terms()`, waits for the next term.
    """

    def __init__(self, held: HeldLease, fences: FencePort) -> None:
        self._held = held
        self._fences = fences
        self._bodies = TermBodies(held)

    @property
    def _lease(self) -> HeldLease:
        return self._held

    def _changed_nothing(self, guard: GuardText) -> FenceholdError:
        """Ask the store why a guarded statement changed no row, and return the error for the caller to raise.

        The term is ended only if its lease is over.
        """
        limit_s = min(self._held.settings.call_limit_s, self.remaining_s)
        is_held = guard.is_held() if self.is_valid else None
        match self._held.confirmed(limit_s) if is_held is None else is_held:
            case False:
                return self.lost("the store says that it is over" if self.is_valid else self._held.why_over)
            case None:
                return Uncertain(
                    f"Lease {self.name!r} epoch {self.epoch}: a guarded statement changed no row, and the store did "
                    "not say in time whether the lease is still held. The statement wrote nothing.",
                    hint="The term ends by itself unless a renewal succeeds.",
                    code="no_answer",
                )
        return ConfigurationError(
            f"A guarded statement changed no row although lease {self.name!r} epoch {self.epoch} is held: its own "
            "condition matched nothing, or it ran on another database than the store's. The term goes on.",
            hint="Run it on the store's database. If your condition may fairly match no row, use term.transaction().",
            code="guard_matched_nothing",
        )

    async def ended(self) -> None:
        """Wait until the term is over."""
        await self._bodies.over.wait()

    # --- the fence ---

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Return a fenced transaction on one of the store's own connections: it commits only while this epoch holds.

        While it is open no other holder can take over the lease; renewals go on. Raises LeaseLost if the term is over.
        """
        return AsyncTransactionBlock(self._fenced())

    @asynccontextmanager
    async def _fenced(self) -> AsyncIterator[Transaction]:
        self.check()
        try:
            async with self._fences.transaction(self._held.key, lambda: self._held.remaining_s) as tx:
                yield tx
        except LeaseLost as error:
            self._end_by(error)
            raise

    def _transaction_sync(self) -> AbstractContextManager[SyncTransaction]:
        """Return the same as `transaction`, for code without an event loop; it runs in the calling thread."""
        return PlainTransactionBlock(self._fenced_sync())

    @contextmanager
    def _fenced_sync(self) -> Iterator[SyncTransaction]:
        self.check()
        try:
            with self._fences.transaction_sync(self._held.key, lambda: self._held.remaining_s) as tx:
                yield tx
        except LeaseLost as error:
            self._end_by(error)
            raise

    @overload
    def fence(self, connection_or_session: SyncConnection) -> Awaitable[None]: ...
    @overload
    def fence(self, connection_or_session: AsyncConnection) -> Coroutine[Any, Any, None]: ...
    def fence(self, connection_or_session: Connection) -> Awaitable[None]:
        """Fence a transaction that the caller owns: from here to its commit nobody can take over the lease.

        Takes the same connections and sessions as `outbox.add(tx=)`; await the result for the async ones. If the term
        is over, it raises LeaseLost and makes the transaction unable to commit. Without the await, the transaction of
        an async connection is not fenced: that is logged as an error (`fence_not_awaited`) and ends the term.
        """
        new_to = self._bodies.remember(connection_or_session)
        with self._refusals(connection_or_session, new_to):
            pending = self._fences.fence(connection_or_session, self._held.key, over=not self.is_valid)
        if not asyncio.iscoroutine(pending):
            return pending
        return PendingFence(self._awaited(pending, connection_or_session, new_to), pending, self._forgotten)

    def _fence_sync(self, connection_or_session: SyncConnection) -> None:
        """Fence the caller's transaction before this returns, for code without an event loop; else like `fence`.

        Raises ConfigurationError (`bad_connection`) for an async connection, and fences nothing.
        """
        pending = self.fence(connection_or_session)
        if isinstance(pending, PendingFence):
            pending.close()
            raise sync_needed()

    def _forgotten(self) -> None:
        """Make the term invalid now, because a fence was not awaited; end it where locks are allowed: on the loop."""
        self._held.distrust()
        self._bodies.soon(self._end_forgotten)

    def _end_forgotten(self) -> None:
        self._held.facts.fence_not_awaited(hint=NOT_AWAITED_HINT)
        self._held.end(NOT_AWAITED)

    async def _awaited(self, pending: Awaitable[None], target: object, new_to: list[TermBody]) -> None:
        with self._refusals(target, new_to):
            await pending

    @contextmanager
    def _refusals(self, target: object, new_to: list[TermBody]) -> Iterator[None]:
        """Handle the errors that a fence raises inside the block, then raise them unchanged.

        LeaseLost ends the term. After a ConfigurationError the connection is not touched when the term ends later.
        """
        try:
            yield
        except LeaseLost as error:
            if self._held.is_inherited:
                raise self._of_parent() from error
            self._end_by(error)
            raise
        except ConfigurationError:
            self._bodies.forget(target, new_to)
            raise

    def guard(self) -> Guard:
        """Return a condition that makes one statement a fenced write; see Guard.

        Raises LeaseLost if the term is over.
        """
        self.check()
        return Guard(self, self._fences.guard(self._held.key))

    def _end_by(self, error: LeaseLost) -> None:
        if error.epoch == self.epoch:
            self._held.end("fence_refused")

    # --- the cancel scope ---

    async def __aenter__(self) -> Self:
        await self._until_valid()
        self._bodies.enter()
        return self

    async def _until_valid(self) -> None:
        """Raise LeaseLost if the term is over; called before a block begins.

        TermOfLoop waits for the next term instead.
        """
        self.check()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        body = self._bodies.leave()
        swallowed = self._is_mine(error)
        if body.leave() and body.cancelled_by_us:
            swallowed = swallowed or isinstance(error, asyncio.CancelledError)
        if swallowed:  # the code around the block sees no error, and would commit an incomplete transaction
            for target in body.fenced:
                await self._fences.spoil(target)
        return swallowed

    def _is_mine(self, error: BaseException | None) -> bool:
        if isinstance(error, BaseExceptionGroup):  # from a TaskGroup in the body
            return all(self._is_mine(one) for one in error.exceptions)
        return isinstance(error, LeaseLost) and (error.name, error.epoch) == (self.name, self.epoch)
