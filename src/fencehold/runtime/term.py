"""One term of office: the fencing token, the cancel scope and the fence, in the hand of the code that leads."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.fence import FencePort, GuardText, SyncTransaction, Transaction
from fencehold.runtime.body import Body
from fencehold.runtime.held import Held


class Guard:
    """A condition for the WHERE of ONE statement: it writes only while the epoch holds. Then `check` what it did.

    `sql` is in the driver's own parameter style, `text` in SQLAlchemy's; both use `params`.
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
        """Raise LeaseLost, and end the term, if the guarded statement changed no row. Takes a cursor or a row count."""
        count = result if isinstance(result, int) else getattr(result, "rowcount", None)
        # sqlite3 counts a statement WITH a CTE as -1, and one with RETURNING as 0 until its rows are fetched.
        unsure = type(result).__module__ == "sqlite3" and getattr(result, "description", None) is not None
        if not isinstance(count, int) or count < 0 or (count == 0 and unsure):
            raise ConfigurationError(
                "The driver does not say how many rows this statement changed.",
                hint="Fetch its rows and give their number: guard.check(len(rows)); or use term.transaction().",
                code="rowcount_unknown",
            )
        if count == 0:
            raise self._term.lost("a guarded statement changed no row")


class Term:
    """Valid until a local deadline that falls before the store's own expiry; `is_valid` never does I/O.

    `async with term:` cancels its body when the term ends, and swallows that cancellation, as well as a LeaseLost of
    this same term: the end of a term is not an error of the program.
    """

    def __init__(self, held: Held, fences: FencePort) -> None:
        self._held = held
        self._fences = fences
        self._loop = asyncio.get_running_loop()
        self._bodies: list[_TermBody] = []
        self._empty = asyncio.Event()
        self._empty.set()
        self._over = asyncio.Event()
        held.on_change(self._changed)

    @property
    def name(self) -> str:
        return self._held.key.name

    @property
    def holder_id(self) -> str:
        return self._held.key.holder_id

    @property
    def epoch(self) -> int:
        """The fencing token: higher than that of every earlier term of this lease."""
        return self._held.key.epoch

    @property
    def expires_at(self) -> dt.datetime:
        """In store time, as of the last renewal."""
        return self._held.lease.expires_at

    @property
    def is_valid(self) -> bool:
        return self._held.is_valid

    @property
    def remaining_s(self) -> float:
        """Seconds until the local deadline, if no renewal came any more."""
        return self._held.remaining_s

    @property
    def ended_because(self) -> str | None:
        return self._held.ended_because

    def check(self) -> None:
        """Raise LeaseLost unless the term is valid at this instant."""
        if not self.is_valid:
            raise self.lost(self._held.ended_because or "its local deadline has passed")

    def lost(self, why: str) -> LeaseLost:
        """End the term and return the error to raise."""
        self._held.end(why)
        return LeaseLost(f"Lease {self.name!r} epoch {self.epoch}: {why}.", name=self.name, epoch=self.epoch)

    async def ended(self) -> None:
        """Wait until the term is over."""
        await self._over.wait()

    # --- the fence ---

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A fenced transaction on a connection of the store's own: it commits only while this epoch holds.

        While it is open no other holder can take the lease over; renewals go on.
        """
        return self._fenced()

    @asynccontextmanager
    async def _fenced(self) -> AsyncIterator[Transaction]:
        self.check()
        try:
            async with self._fences.transaction(self._held.key, lambda: self._held.remaining_s) as tx:
                yield tx
        except LeaseLost as error:
            self._end_by(error)
            raise

    @contextmanager
    def transaction_sync(self) -> Iterator[SyncTransaction]:
        """`transaction` for code without an event loop, in the calling thread."""
        self.check()
        try:
            with self._fences.transaction_sync(self._held.key, lambda: self._held.remaining_s) as tx:
                yield tx
        except LeaseLost as error:
            self._end_by(error)
            raise

    def fence(self, connection_or_session: object) -> Awaitable[None]:
        """The same guard in a transaction the caller owns: from here to its commit nobody can take over.

        For psycopg and sqlite3 connections and SQLAlchemy sessions; await it for the async ones. Raises LeaseLost, and
        makes the transaction unable to commit, if the term is over.
        """
        self._remember(connection_or_session)
        try:
            pending = self._fences.fence(connection_or_session, self._held.key, over=not self.is_valid)
        except LeaseLost as error:
            self._end_by(error)
            raise
        return self._awaited(pending) if asyncio.iscoroutine(pending) else pending

    async def _awaited(self, pending: Awaitable[None]) -> None:
        try:
            await pending
        except LeaseLost as error:
            self._end_by(error)
            raise

    def guard(self) -> Guard:
        """A condition that makes one statement a fenced write; see Guard."""
        self.check()
        return Guard(self, self._fences.guard(self._held.key))

    def _end_by(self, error: LeaseLost) -> None:
        if error.epoch == self.epoch:
            self._held.end("fence_refused")

    # --- the cancel scope ---

    async def __aenter__(self) -> Self:
        self._bodies.append(_TermBody())
        self._empty.clear()
        if not self.is_valid:
            self._held.end("deadline_passed")
            self._loop.call_soon(self._cancel_bodies)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        body = next(b for b in reversed(self._bodies) if b.task is asyncio.current_task())
        self._bodies.remove(body)
        if not self._bodies:
            self._empty.set()
        swallowed = self._is_mine(error)
        if body.leave() and body.cancelled_by_us:
            swallowed = swallowed or isinstance(error, asyncio.CancelledError)
        if swallowed:  # whoever is outside sees no error, and would commit half of what the body began
            for target in body.fenced:
                await self._fences.spoil(target)
        return swallowed

    def _remember(self, target: object) -> None:
        """The body of this task has a transaction open there: if the body is cut short, so is that."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop in this thread, and so no body
            return
        for body in self._bodies:
            if body.task is task and all(target is not one for one in body.fenced):
                body.fenced.append(target)

    def _is_mine(self, error: BaseException | None) -> bool:
        if isinstance(error, BaseExceptionGroup):  # of a TaskGroup in the body
            return all(self._is_mine(one) for one in error.exceptions)
        return isinstance(error, LeaseLost) and (error.name, error.epoch) == (self.name, self.epoch)

    async def bodies_left(self, limit_s: float) -> bool:
        """Wait, within the limit, until no `async with term:` body runs any more; False when one still does."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._empty.wait()
        except TimeoutError:
            return False

    def _changed(self) -> None:
        """On any thread."""
        if self._held.ended_because is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._cancel_bodies)
        except RuntimeError:  # the loop is closed, and with it every body
            return

    def _cancel_bodies(self) -> None:
        self._over.set()
        for body in self._bodies:
            body.cancel()


class _TermBody(Body):
    def __init__(self) -> None:
        super().__init__("the term of office is over")
        self.fenced: list[object] = []
