"""A connection for one event loop: statements run on it one at a time, each within its limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fencehold.backends.sql.abandoned import retrieve
from fencehold.backends.sql.statements import Statements, advised
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.line import Line
from fencehold.model.errors import FenceholdError, Unavailable, Uncertain
from fencehold.ports.time_limit import TimeLimit

T = TypeVar("T")


class Session:
    """One connection at a time, with its thread.

    After an error, a timeout or a cancel the next call gets a new connection.
    """

    def __init__(self, address: Address, statements: Statements, prefix: str = "fencehold-mssql") -> None:
        self.statements = statements
        self._address = address
        self._prefix = prefix
        self._line: Line | None = None
        self._turn = asyncio.Lock()

    async def run(self, name: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        """Run the statement of this name as one batch, which is a transaction of its own, and return its rows."""
        return await self.batch(self.statements.named(name), params, limit_s)

    async def batch(self, sql: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        return await self.call(lambda line: batch.run(line, sql, params, limit_s), limit_s)

    async def call(self, work: Callable[[Line], T], limit_s: float) -> T:
        """Return what `work` returns on the line's thread.

        Calls run one at a time; waiting for the turn counts in the limit.
        """
        ends_s = time.monotonic() + limit_s
        await self._await_turn(limit_s)
        try:
            line = self._line = self._line or Line(self._address, name=self._prefix)
            try:
                return await answer(line, work, ends_s - time.monotonic())
            except BaseException as error:
                if isinstance(error, FenceholdError):
                    advised(error, self.statements)
                if not line.is_connecting:  # else the next call can use the connection once it is made
                    line.leave()
                    self._line = None
                raise
        finally:
            self._turn.release()

    async def _await_turn(self, limit_s: float) -> None:
        try:
            async with TimeLimit(limit_s):
                await self._turn.acquire()
        except TimeoutError:
            raise Unavailable("The store's connection was busy; nothing was sent.", code="busy") from None

    async def drop_line(self) -> None:
        """Close the connection after the call that is using it, so that the next call opens a new one."""
        async with self._turn:
            await self.close()

    async def close(self) -> None:
        if self._line is not None:
            self._line.leave()
            self._line = None


async def answer(
    line: Line, work: Callable[[Line], T], limit_s: float, unsorted: tuple[type[Exception], ...] = ()
) -> T:
    """Return what `work` returns on the line's thread. Raises one of our errors if it fails or the limit is over.

    When the limit is over: Unavailable if nothing was sent, else Uncertain. `unsorted`: classes of driver's errors that
    are raised as they are. After an error the caller must leave the line.
    """
    future = line.submit(work)
    waiting = asyncio.wrap_future(future)
    waiting.add_done_callback(retrieve)
    try:
        done, _ = await asyncio.wait([waiting], timeout=max(0.0, limit_s))
    except BaseException:
        future.cancel()
        raise
    if not done:
        raise unanswered(limit_s, was_sent=not future.cancel())
    try:
        return future.result()
    except unsorted:
        raise
    except driver.Error as error:
        raise faults.of_statement(error) from None


def unanswered(limit_s: float, was_sent: bool) -> Unavailable | Uncertain:
    if not was_sent:
        return Unavailable(
            f"SQL Server did not answer within {max(0.0, limit_s):.1f} s of connecting; nothing was sent.",
            hint="Check host, port and network, and that the server runs.",
            code="unreachable",
        )
    hint = "It counts as lost until the store says otherwise."
    return Uncertain(f"SQL Server gave no answer within {max(0.0, limit_s):.1f} s.", hint=hint, code="no_answer")
