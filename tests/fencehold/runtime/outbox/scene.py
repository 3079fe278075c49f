"""What the tests of the outbox share: facts that can be waited for, the table as SQL sees it, workers that run."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

import fencehold
from fencehold.backends.sqlserver import driver
from fencehold.backends.sqlserver.address import Address
from tests.across_packages.processes import execute
from tests.servers.limits import stretched

LIMIT_S = 30.0
COLUMNS = (
    "id", "tracking_id", "event_type", "status", "retry_count", "max_retries", "locked_until", "lock_token",
    "last_error", "processed_at", "due_at", "root_cause", "priority", "created_at",
)  # fmt: skip
PAST = {
    "postgresql": "now() - interval '1 second'",
    "sqlite": "'2000-01-01T00:00:00.000Z'",
    "mssql": "DATEADD(second, -1, SYSUTCDATETIME())",
}
HOUR = {
    "postgresql": "now() + interval '1 hour'",
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour')",
    "mssql": "DATEADD(hour, 1, SYSUTCDATETIME())",
}
LONG_AGO = {
    "postgresql": "'2001-01-01'",
    "sqlite": "'2001-01-01T00:00:00.000Z'",
    "mssql": "'2001-01-01T00:00:00'",
}


class Heard:
    """Keeps every fact; `once` waits for one, from whatever thread it comes."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def fact(self, event: str, **fields: Any) -> None:
        self.facts.append((event, fields))
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)

    def all(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        return [told for name, told in list(self.facts) if name == event and fields.items() <= told.items()]

    async def once(self, event: str, times: int = 1, limit_s: float = LIMIT_S, **fields: Any) -> dict[str, Any]:
        found, looked_at = list[dict[str, Any]](), 0
        async with asyncio.timeout(limit_s):
            while True:
                new, looked_at = self.facts[looked_at:], len(self.facts)
                found += [told for name, told in new if name == event and fields.items() <= told.items()]
                if len(found) >= times:
                    return found[times - 1]
                self._news.clear()
                await self._news.wait()


def dialect(url: str) -> str:
    return url.partition(":")[0]


def enough_s(url: str, usual_s: float) -> float:
    """A lease that a healthy worker keeps, also on a busy machine, where its threads wait for their turn.

    It also outlasts the first reading of a statement, which takes some SQL Servers a second.
    """
    return stretched(max(usual_s, 4.0) if dialect(url) == "mssql" else usual_s)


def own_connection(url: str, autocommit: bool = False) -> Any:
    """A user's own, of the database's usual driver."""
    if dialect(url) == "sqlite":
        settings: dict[str, Any] = {"isolation_level": None} if autocommit else {}
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=5, **settings)
    if dialect(url) == "mssql":
        return driver.connect(Address.of(url), autocommit=autocommit, limit_s=10)
    return psycopg.connect(url, autocommit=autocommit)


async def eventually(condition: Callable[[], Awaitable[Any]], limit_s: float = LIMIT_S) -> Any:
    """What the condition answers once that is true; asked again and again, within a limit."""
    give_up_s = time.monotonic() + limit_s
    while not (answer := await condition()):
        assert time.monotonic() < give_up_s, f"not within {limit_s:g} s: {condition}"
        await asyncio.sleep(0.01)
    return answer


async def rows(url: str, where: str = "1 = 1") -> list[dict[str, Any]]:
    found = await execute(url, f"SELECT {', '.join(COLUMNS)} FROM outbox WHERE {where} ORDER BY id")
    return [{**dict(zip(COLUMNS, row, strict=True)), "tracking_id": str(row[1])} for row in found]


async def row(url: str, tracking_id: str) -> dict[str, Any]:
    (found,) = await rows(url, f"tracking_id = '{tracking_id}'")
    return found


async def statuses(url: str) -> list[str]:
    return [found["status"] for found in await rows(url)]


async def becomes(url: str, tracking_id: str, status: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
    async def is_so() -> dict[str, Any] | None:
        found = await row(url, tracking_id)
        return found if found["status"] == status else None

    found: dict[str, Any] = await eventually(is_so, limit_s)
    return found


async def all_are(url: str, status: str, count: int, limit_s: float = LIMIT_S) -> None:
    async def is_so() -> bool:
        return await statuses(url) == [status] * count

    await eventually(is_so, limit_s)


async def update(url: str, change: str, where: str = "1 = 1") -> None:
    await execute(url, f"UPDATE outbox SET {change} WHERE {where}")


async def lapse(url: str, where: str = "status = 'PROCESSING'") -> None:
    """As if the lease of these had run out a second ago."""
    await update(url, f"locked_until = {PAST[dialect(url)]}", where)


async def make_due(url: str) -> None:
    await update(url, f"due_at = {PAST[dialect(url)]}")


@asynccontextmanager
async def running(*workers: fencehold.Worker) -> AsyncIterator[None]:
    """They run inside the block, and are stopped at its end; what one of them raised is raised there."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


class Gate:
    """A handler that says who came in and lets them out when told; async, and counts how many are inside."""

    def __init__(self, is_open: bool = False) -> None:
        self.entered: list[fencehold.Claim] = []
        self.done: list[str] = []
        self.cancelled: list[str] = []
        self.inside = self.most = 0
        self._open = asyncio.Event()
        self._news = asyncio.Event()
        if is_open:
            self._open.set()

    async def __call__(self, event: fencehold.Claim) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.append(event)
        self._news.set()
        try:
            await self._open.wait()
            self.done.append(event.tracking_id)
        except asyncio.CancelledError:
            self.cancelled.append(event.tracking_id)
            raise
        finally:
            self.inside -= 1
            self._news.set()

    def open(self) -> None:
        self._open.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def has(self, count: int) -> None:
        await self.until(lambda: len(self.entered) >= count)


class ThreadGate:
    """The same for handlers on threads."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.threads: set[str] = set()
        self.inside = self.most = 0
        self.opened = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, event: fencehold.Claim) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.entered.append(event.token)
            self.threads.add(threading.current_thread().name)
        try:
            assert self.opened.wait(LIMIT_S), "nobody opened the gate"
        finally:
            with self._lock:
                self.inside -= 1

    async def has(self, count: int) -> None:
        async def is_so() -> bool:
            return len(self.entered) >= count

        await eventually(is_so)


def code_of(error: Any) -> str:
    return str(error.value.code)
