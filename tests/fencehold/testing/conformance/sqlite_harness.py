"""SQLite in a file of the test's own, with `strftime('...', 'now')` answered by the test."""

import asyncio
import contextlib
import datetime as dt
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fencehold.backends.sqlite import fences, session
from fencehold.backends.sqlite.backend import SqliteBackend
from fencehold.ports.backend import Backend
from fencehold.testing.harness import LEASE_TABLE, Can, Door, Harness, Remote, Traits
from tests.fencehold.testing.conformance.callers import alchemy_doors, plain_door
from tests.fencehold.testing.conformance.foreign_callers import aiosqlite_door, django_door, django_settings

TABLES = """
CREATE TABLE notes (place INTEGER PRIMARY KEY, note INTEGER NOT NULL);
CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL);
INSERT INTO counters VALUES (1, 0);
"""
LOCKING = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


class SteeredClock:
    """Stands in for SQLite's own clock, in every connection it was put into."""

    def __init__(self) -> None:
        self.now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    def put_into(self, connection: Any) -> None:
        """Also makes commits quick: nothing here is about a machine that loses its power."""
        connection.create_function("strftime", -1, self.strftime)
        connection.execute("PRAGMA synchronous = OFF").close()

    def strftime(self, form: str, instant: str, modifier: str = "+0 seconds") -> str:
        """The one form that the statements use; another one is a mistake in this stand-in, and fails."""
        amount, unit = modifier.split()
        assert (form, instant, unit) == ("%Y-%m-%dT%H:%M:%fZ", "now", "seconds")
        then = self.now() + dt.timedelta(seconds=float(amount))
        return then.strftime("%Y-%m-%dT%H:%M:%S.") + f"{then.microsecond // 1000:03d}Z"


@contextlib.contextmanager
def steered(steered_path: str, clock: SteeredClock) -> Iterator[None]:
    """Every connection that the backend opens to this file gets the clock."""
    before = session.connect

    def connect(path: str, mode: session.Mode, limit_s: float) -> sqlite3.Connection:
        connection = before(path, mode, limit_s)
        if path == steered_path:
            clock.put_into(connection)
        return connection

    with contextlib.ExitStack() as stack:
        for module in (session, fences):  # both know it by this name
            stack.enter_context(mock.patch.object(module, "connect", connect))
        yield


class SqliteSql:
    error = sqlite3.Error

    def __init__(self, path: str, clock: SteeredClock) -> None:
        self._path = path
        self._clock = clock

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(self._connect(True)) as connection:
            return connection.execute(statement).fetchall()

    async def run_script(self, script: str) -> None:
        with contextlib.closing(self._connect(True)) as connection:
            connection.executescript(script)

    def doors(self) -> Sequence[Door]:
        return [
            plain_door("sqlite3 after BEGIN IMMEDIATE", lambda _: self._connect(True), "BEGIN IMMEDIATE"),
            plain_door("sqlite3", self._connect),
            *alchemy_doors(f"sqlite:///{self._path}", f"sqlite+aiosqlite:///{self._path}", self._prepare_alchemy),
            django_door(lambda: django_settings("sqlite3", self._path), self._prepare_alchemy),
            aiosqlite_door(self._path, self._clock.strftime),
        ]

    async def until_one_waits(self) -> None:
        raise NotImplementedError("SQLite locks the file, not rows")

    def _connect(self, autocommit: bool) -> sqlite3.Connection:
        level: Any = {"isolation_level": None} if autocommit else {}
        connection: sqlite3.Connection = sqlite3.connect(self._path, check_same_thread=False, timeout=10, **level)
        self._clock.put_into(connection)
        return connection

    def _prepare_alchemy(self, connection: Any) -> None:
        connection.create_function("strftime", -1, self._clock.strftime)


class SqliteHarness(Harness):
    traits = Traits(
        "SQLite",
        tick=dt.timedelta(milliseconds=1),
        can={*Can} - {Can.ROW_LOCKS, Can.PLACES, Can.WAKEUPS, Can.NETWORK},
    )

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = str(path)
        self._clock = SteeredClock()
        self._sql = SqliteSql(self.path, self._clock)

    async def prepare(self) -> None:
        self.stack.enter_context(steered(self.path, self._clock))
        await self._sql.run_script(TABLES)

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return SqliteBackend(self.path, table)

    def second(self) -> "SqliteHarness":
        path = Path(self.path)
        return SqliteHarness(path.with_name(f"another-{path.name}"))

    async def set_clock(self, at: dt.datetime) -> None:
        self._clock.now = lambda: at

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        self._clock.now = lambda: dt.datetime.now(dt.UTC) + ahead

    @property
    def sql(self) -> SqliteSql:
        return self._sql

    @property
    def remote(self) -> Remote:
        return Remote(f"sqlite:///{self.path}")

    @asynccontextmanager
    async def obstructed(self) -> AsyncIterator[None]:
        """Another process keeps the file locked."""
        command = [sys.executable, "-c", LOCKING, self.path]
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            await process.communicate(b"\n")
