"""Real candidates, started, told, killed and frozen; and what the server knows about the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.across_packages.processes import Process
from tests.pgleaderlock.candidate import now_s

HOLDERS_SQL = """
SELECT l.pid FROM pg_locks AS l
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::int4 = 1 AND l.objid::int4 = 100
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Candidate(Process):
    def __init__(self, module: str, dsn: str, name: str, *options: str) -> None:
        self.killed_s: float | None = None
        self._launch(name, module, dsn, "--name", name, *options)

    def kill(self) -> None:
        self.killed_s = self.killed_s or now_s()
        super().kill()

    def all_told(self) -> list[dict[str, Any]]:
        """Everything it told until it ended."""
        while not self.events or self.events[-1]["event"] != "eof":
            self.events.append(self._arrived.get(timeout=10))
        return self.events

    def terms(self) -> list[tuple[float, float]]:
        """For each time it led: an instant by which it did, and the last at which it is known that it still did."""
        found: list[tuple[float, float]] = []
        for told in self.all_told():
            if told["event"] == "leads":
                found.append((told["at_s"], self.killed_s or told["at_s"]))
            elif told["event"] == "follows":
                found[-1] = (found[-1][0], told["last_s"])
        return found


@contextmanager
def candidates(dsn: str, module: str = "tests.pgleaderlock.candidate") -> Iterator[Any]:
    """Starts candidates; none outlives the block, frozen or not."""
    started: list[Candidate] = []

    def start(name: str, *options: str, at: str = dsn) -> Candidate:
        started.append(Candidate(module, at, name, *options))
        return started[-1]

    try:
        yield start
    finally:
        for candidate in started:
            candidate.kill()


def through(dsn: str, port: int) -> str:
    """The same database, by way of a proxy on this port."""
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}").geturl()


def address(dsn: str) -> tuple[str, int]:
    parts = urlsplit(dsn)
    assert parts.hostname is not None
    return parts.hostname, parts.port or 5432


def asked(dsn: str, sql: str, *params: Any) -> list[Any]:
    """The first column."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), params)
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def holders(dsn: str) -> list[int]:
    """The server processes that hold lock (1, 100)."""
    return asked(dsn, HOLDERS_SQL)


async def until(dsn: str, sql: str, *params: Any, met: Callable[[list[Any]], bool]) -> list[Any]:
    """Until the server's answer is as wished; the test's own limit ends a wait in vain."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        while True:
            answer = [row[0] for row in await (await connection.execute(sql.encode(), params)).fetchall()]
            if met(answer):
                return answer
            await asyncio.sleep(0.005)


async def until_held(dsn: str, count: int) -> list[int]:
    """Until so many sessions hold the lock."""
    return await until(dsn, HOLDERS_SQL, met=lambda pids: len(pids) == count)


async def until_probed(dsn: str, pid: int) -> None:
    """Until the server has begun to answer one more probe of this session."""
    sql = "SELECT query_start FROM pg_stat_activity WHERE pid = %s AND query LIKE '%%current_setting%%'"
    before = asked(dsn, sql, pid)
    await until(dsn, sql, pid, met=lambda now: now != before)
