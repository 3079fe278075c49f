"""Lines to SQL Server that are kept for the next batch: of the service's clients, its schedule, its leader's writes.

Every batch ends within its limit, though the driver's own call may not: its line is then left behind, and the next
batch gets a new one. How many may hang is bounded too: a server that answers nobody must not fill the process with
threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.session import unanswered
from fencehold.model.errors import Unavailable, Uncertain
from submission_manager.stores.statements import StoreStatements

HANGING_MAX = 50
FRESH_S = 1.0  # a line that answered so lately is not asked first whether it still does
PROBE_LIMIT_S = 2.0
NO_NUMBER = 0  # as NO_TEXT is, where a number is wanted


class Pool:
    """A line that saw trouble is left; one that died while it was kept is replaced without a word."""

    def __init__(self, address: Address, statements: StoreStatements, size: int, name: str) -> None:
        self._address = address
        self._statements = statements
        self._size = size
        self._name = name
        self._turns = asyncio.Semaphore(size)
        self._idle: list[tuple[Line, float]] = []
        self._is_closed = False

    async def run(self, name: str, params: Mapping[str, Any], limit_s: float, *, may_repeat: bool = True) -> Rows:
        """The rows of one batch. `may_repeat`: to run it twice is the same as once, so a kept line needs no probe.

        No parameter is None, see NO_TEXT. What is wrong with a value, not with the database, leaves as the driver's own
        error.
        """
        assert None not in params.values(), "NO_TEXT or NO_NUMBER instead"
        left_s = _fixed(limit_s)
        await self._turn(limit_s)
        try:
            while True:
                line, was_kept = await self._checkout(left_s, is_probed=not may_repeat)
                try:
                    rows = await self._answer(line, self._statements.named(name), params, left_s())
                except Uncertain:
                    if not (may_repeat and was_kept and left_s() > 0):
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
            raise Unavailable("Every connection was busy; nothing was sent.", code="busy") from None

    async def _checkout(self, left_s: Callable[[], float], *, is_probed: bool) -> tuple[Line, bool]:
        """A line, and whether it was kept from an earlier batch."""
        if self._is_closed:
            raise Unavailable("The store is closed.", code="store_closed")
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
            await self._answer(line, self._statements.named("probe"), {}, min(limit_s, PROBE_LIMIT_S))
        except (Uncertain, Unavailable):
            return False
        return True

    def _keep(self, line: Line) -> None:
        if self._is_closed:
            line.leave()
        else:
            self._idle.append((line, time.monotonic()))

    async def _answer(self, line: Line, sql: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        """The line is left when it does not answer, or not well, or when nobody waits for it any more.

        But one that is still connecting is the next call's: a slow login would else begin anew with each.
        """
        future = line.submit(lambda _: batch.run(line, sql, params, limit_s))
        try:
            waiting = asyncio.wrap_future(future)
            waiting.add_done_callback(_retrieve)
            done, _ = await asyncio.wait([waiting], timeout=max(0.0, limit_s))
            if not done:
                raise unanswered(limit_s, was_sent=not future.cancel())
            return _sorted_out(line, future)
        except BaseException:
            future.cancel()
            if line.is_connecting:
                self._keep(line)
            else:
                line.leave()
            raise


def _sorted_out(line: Line, future: Future[Rows]) -> Rows:
    try:
        return future.result()
    except (driver.DataError, driver.IntegrityError):
        raise
    except driver.Error as error:
        raise (faults.of_statement(error) if line.is_open else faults.of_connect(error)) from None


def _fixed(limit_s: float) -> Callable[[], float]:
    """A limit that does not move, counted from now."""
    ends_s = time.monotonic() + limit_s
    return lambda: ends_s - time.monotonic()


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
