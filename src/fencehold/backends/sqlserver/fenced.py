"""A fenced transaction on a `Line` (a connection with its own thread).

It is entered, executed and committed step by step, and each step only while the term lasts.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from fencehold.backends.sql.abandoned import retrieve
from fencehold.backends.sql.fenced import (
    BEFORE_COMMIT,
    BEFORE_STATEMENT,
    UNDER_WAY,
    FencedTerm,
    fence_gone,
    given_up,
    lost,
)
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver import batch, callers, driver, faults
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.params import bound
from fencehold.backends.sqlserver.results import Result, Rows
from fencehold.model.errors import FenceholdError, Unavailable, Uncertain
from fencehold.ports.fence import Params

GONE_HINT = (
    "Leave commit and rollback to `term.transaction()`, and open a second one for a second transaction; an error that "
    "the server answers by rolling back (a deadlock, say) must leave the block."
)

T = TypeVar("T")


class FencedLine:
    """The steps of a fenced transaction, for async and for blocking code.

    `enter`, `execute` and `commit` run on the line's thread. They raise the driver's errors, or ours for a refusal.
    `own` and `callers` return the result of a step in the calling thread.
    """

    def __init__(self, line: Line, statements: Statements, term: FencedTerm) -> None:
        self.line = line
        self.term = term
        self._key = term.key
        self._statements = statements

    def enter(self, line: Line) -> None:
        """Begin the transaction, take the lease's lock and check the lease. Raises our error if that is refused.

        Each wait of this transaction on the server, in this step and in later ones, is limited to half the lease.
        """
        wait_ms = callers.wait_ms(self._key)
        line.connection.timeout = max(1, math.ceil(self._key.lease_s / 2))
        # All settings again: statements of the last transaction on a kept session may have changed them.
        batch.rows(line.connection, f"{line.settings} SET LOCK_TIMEOUT {wait_ms:d};")
        if refusal := callers.refused(self._key, self._rows("enter"), callers.outside()):
            raise refusal

    def execute(self, line: Line, statement: Any, params: Params) -> Rows:
        with contextlib.closing(line.connection.cursor()) as cursor:
            cursor.execute(statement, *([] if params is None else [params]))
            return Rows(cursor)

    def commit(self, line: Line) -> None:
        """Commit if the lease is still this term's. Raises our error if it was not committed.

        The statement `commit` has then rolled the transaction back itself.
        """
        [(verdict,)] = self._rows("commit")
        if verdict == "gone":
            raise fence_gone(GONE_HINT)
        if verdict == "busy":
            raise Unavailable("Another session held the lease's lock; nothing was committed.", code="busy")
        if verdict != "committed":
            raise lost(self._key, "another holder took over; nothing was committed")

    def _rows(self, name: str) -> batch.Rows:
        return batch.rows(self.line.connection, *bound(self._statements.named(name), callers.params(self._key)))

    # --- the outcome of a step ---

    def own(self, future: Future[T]) -> T:
        """Return the result of one of our own steps, which has ended. A driver's error is raised as ours."""
        try:
            return future.result()
        except driver.Error as error:
            raise faults.of_statement(error) from error

    def callers(self, future: Future[T]) -> T:
        """Return the result of the caller's statement, which has ended.

        A driver's error is raised as it is, because it is about the caller's statement. But if the connection broke,
        raises Unavailable, or LeaseLost if the term is over.
        """
        try:
            return future.result()
        except driver.Error as error:
            if not faults.is_connection_lost(error):
                raise
            self.term.check(UNDER_WAY)
            said = faults.text_of(error)
            raise Unavailable(
                f"The connection broke inside the transaction; nothing was committed: {said}", code="connection_lost"
            ) from error

    def left_s(self, over: FenceholdError | None = None) -> float:
        """Return how many seconds a step may still take: until the term is over.

        If the term is over already, raises `over`; with `over` None, raises LeaseLost.
        """
        left_s = self.term.remaining_s()
        if left_s <= 0:
            raise over or lost(self._key, UNDER_WAY)
        return left_s

    def commit_unknown(self) -> Uncertain:
        return Uncertain(
            f"Lease {self._key.name!r} epoch {self._key.epoch}: the term ended while its commit was under way.",
            hint="Read what you wrote to see whether it was committed; if it was, it was before anybody took over.",
            code="no_answer",
        )


class LineTransaction:
    """What the fenced transactions for async and for blocking code share.

    `connection` is the driver's own connection; use it in one thread at a time.
    """

    def __init__(self, fenced: FencedLine) -> None:
        self._fenced = fenced
        self.line = fenced.line

    @property
    def connection(self) -> driver.Connection:
        return self.line.connection


class SqlServerTransaction(LineTransaction):
    """A fenced transaction for async code."""

    _is_given_up = False

    async def execute(self, statement: Any, params: Params = None) -> Result:
        self._check(BEFORE_STATEMENT)
        future = await self._returned(lambda line: self._fenced.execute(line, statement, params))
        return Result(self._fenced.callers(future))

    async def enter(self) -> None:
        self._fenced.own(await self._returned(self._fenced.enter))

    async def commit(self) -> None:
        self._check(BEFORE_COMMIT)
        self._fenced.own(await self._returned(self._fenced.commit, self._fenced.commit_unknown()))

    async def _returned(self, work: Callable[[Line], T], over: FenceholdError | None = None) -> Future[T]:
        """Run the step on the line's thread, wait for its end, and return its finished Future.

        If the term ends first, raises `over` (None: LeaseLost). The step is then abandoned, and unless its commit was
        already under way, nothing is committed.
        """
        future = self.line.submit(work)
        waiting = asyncio.wrap_future(future)
        waiting.add_done_callback(retrieve)
        while not waiting.done():
            left_s = self._fenced.left_s(over)
            try:
                await asyncio.wait([waiting], timeout=left_s)
            except BaseException:
                self._is_given_up = True
                raise
        return future

    def _check(self, why: str) -> None:
        self._fenced.term.check(why)
        if self._is_given_up:
            raise given_up()


class BlockingTransaction(LineTransaction):
    """A fenced transaction for programs without an event loop."""

    def execute(self, statement: Any, params: Params = None) -> Rows:
        self._fenced.term.check(BEFORE_STATEMENT)
        return self._fenced.callers(self._returned(lambda line: self._fenced.execute(line, statement, params)))

    def enter(self) -> None:
        self._fenced.term.check()
        self._fenced.own(self._returned(self._fenced.enter))

    def commit(self) -> None:
        self._fenced.term.check(BEFORE_COMMIT)
        self._fenced.own(self._returned(self._fenced.commit, self._fenced.commit_unknown()))

    def _returned(self, work: Callable[[Line], T], over: FenceholdError | None = None) -> Future[T]:
        future = self.line.submit(work)
        while not future.done():
            concurrent.futures.wait([future], timeout=self._fenced.left_s(over))
        return future
