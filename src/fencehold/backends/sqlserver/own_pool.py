"""A pool of lines (a line is a connection with its thread) for SQL that a service writes for its own tables.

Every batch ends within its limit, but the driver's call may hang. Its line is then abandoned, and the next batch gets a
new line. The number of hanging lines is limited, so that a server that does not answer does not fill the process with
threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from fencehold.backends.sql.own_rows import by_name
from fencehold.backends.sql.own_tables import PROBE, OwnStatements, busy, closed
from fencehold.backends.sqlserver import batch, driver
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.params import instant, own
from fencehold.backends.sqlserver.session import answer
from fencehold.model.errors import Unavailable, Uncertain
from fencehold.ports.own_tables import Row, Statement
from fencehold.ports.time_limit import fixed

HANGING_MAX = 50
FRESH_S = 1.0  # a line that answered within this time is not probed first
PROBE_LIMIT_S = 2.0
BAD_VALUES = (driver.DataError, driver.IntegrityError)


class Pool:
    """A pool of up to `size` lines in use.

    A line that had an error is abandoned; one that died while idle is replaced.
    """

    def __init__(self, address: Address, statements: OwnStatements, size: int, name: str) -> None:
        self._address = address
        self._statements = statements
        self._size = size
        self._name = name
        self._turns = asyncio.Semaphore(size)
        self._idle: list[tuple[Line, float]] = []
        self._is_closed = False

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        """Run one batch and return its rows. Raises Unavailable if it was not executed, Uncertain if it perhaps was.

        For a value that the database refuses, raises the driver's DataError or IntegrityError.
        """
        left_s = fixed(limit_s)
        await self._turn(limit_s)
        try:
            while True:
                line, was_kept = await self._checkout(left_s, is_probed=not statement.may_repeat)
                try:
                    rows = await self._answer(line, statement, left_s())
                except Uncertain:
                    if not (statement.may_repeat and was_kept and left_s() > 0):
                        raise
                else:
                    self._keep(line)
                    return rows
        finally:
            self._turns.release()

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop()[0].leave()

    async def _turn(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._turns.acquire()
        except TimeoutError:
            raise busy() from None

    async def _checkout(self, left_s: Callable[[], float], *, is_probed: bool) -> tuple[Line, bool]:
        """Return a line, and True if an earlier batch used it, False if it is new.

        With `is_probed` a line that was idle for some time must first answer a probe. Raises Unavailable if too many
        lines hang.
        """
        if self._is_closed:
            raise closed()
        while self._idle:
            line, since_s = self._idle.pop()
            if not is_probed or time.monotonic() - since_s < FRESH_S or await self._lives(line, left_s()):
                return line, True
        if sum(thread.name == self._name for thread in threading.enumerate()) >= self._size + HANGING_MAX:
            raise Unavailable(
                "SQL Server has left too many earlier calls without an answer; nothing was sent.", code="unreachable"
            )
        return Line(self._address, name=self._name), False

    async def _lives(self, line: Line, limit_s: float) -> bool:
        try:
            await self._answer(line, PROBE, min(limit_s, PROBE_LIMIT_S))
        except (Uncertain, Unavailable):
            return False
        return True

    def _keep(self, line: Line) -> None:
        if self._is_closed:
            line.leave()
        else:
            self._idle.append((line, time.monotonic()))

    async def _answer(self, line: Line, statement: Statement, limit_s: float) -> list[Row]:
        """Run one batch on the line and return its rows.

        On any error, or if the caller stops waiting, abandon the line. A line that is still connecting is kept for the
        next call; otherwise a slow login would start again each time.
        """
        sql, params = self._statements.named(statement.name), own(statement.params)
        try:
            return await answer(line, lambda on: batch.read(on, sql, params, limit_s, named_rows), limit_s, BAD_VALUES)
        except BaseException:
            if line.is_connecting:
                self._keep(line)
            else:
                line.leave()
            raise


def named_rows(connection: driver.Connection, text: str, values: tuple[Any, ...]) -> list[Row]:
    with contextlib.closing(connection.cursor()) as cursor:
        found = batch.rows_on(cursor, text, values)
        return by_name(cursor.description or (), found, instant)
