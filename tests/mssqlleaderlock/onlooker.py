"""What a session of nobody's sees of a lock, and a lock behind a network that breaks on command."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fencehold.testing.proxy import FaultProxy
from mssqlleaderlock import FixedInterval, LeaderLock
from mssqlleaderlock.session import SqlServerSession
from tests.pgleaderlock.candidates import address, through
from tests.pgleaderlock.heard import Heard
from tests.servers.sqlserver import open_connection

HEALTH_S = 2.0  # a probe has as long: on a busy machine it is not to be late
FREE_SQL = "SELECT APPLOCK_TEST(N'public', ?, N'Exclusive', N'Session')"


def executed(url: str, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """On a connection of its own, which ends with the call."""
    with contextlib.closing(open_connection(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(sql, *params)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def is_free(url: str, name: str) -> bool:
    return bool(executed(url, FREE_SQL, name)[0][0])


async def until(is_so: Callable[[], bool]) -> None:
    """Asked off the loop, on which a proxy may have to work."""
    async with asyncio.timeout(40):
        while True:
            if await asyncio.to_thread(is_so):
                return
            await asyncio.sleep(0.05)


async def until_free(url: str, name: str) -> None:
    await until(lambda: is_free(url, name))


def new_name() -> str:
    """Locks are not a database's tables: nothing empties them between tests."""
    return f"job-{uuid.uuid4().hex[:8]}"


def watched(url: str, name: str, **options: Any) -> Heard[LeaderLock]:
    options.setdefault("retry_strategy", FixedInterval(0.05))
    options.setdefault("health_interval_s", HEALTH_S)
    return Heard(LeaderLock(url, name, **options))


class Place(Heard[LeaderLock]):
    """One lock whose connection runs through a proxy."""

    def __init__(self, url: str, proxy: FaultProxy, **options: Any) -> None:
        self.url, self.proxy, self.name = url, proxy, new_name()
        options.setdefault("retry_strategy", FixedInterval(0.05))
        options.setdefault("health_interval_s", HEALTH_S)
        super().__init__(LeaderLock(through(url, proxy.port), self.name, **options))

    def rival(self, **options: Any) -> Heard[LeaderLock]:
        """A lock of the same name, on a network of its own."""
        return watched(self.url, self.name, **options)

    @property
    def session(self) -> SqlServerSession:
        assert self.lock._mechanism is not None
        session = self.lock._mechanism._session
        assert session is not None
        return session

    async def is_free(self) -> bool:
        return await asyncio.to_thread(is_free, self.url, self.name)


@asynccontextmanager
async def place(url: str, **options: Any) -> AsyncIterator[Place]:
    async with FaultProxy(*address(url)) as proxy:
        one = Place(url, proxy, **options)
        try:
            yield one
        finally:
            await one.lock.shutdown(5)
