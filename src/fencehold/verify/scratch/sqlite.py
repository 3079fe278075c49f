"""The scratch place of a run on SQLite: a file of the run's own beside the user's file.

It is in the same folder and on the same file system, and the writers of other programs do not have to wait for it.
"""

from __future__ import annotations

import asyncio
import glob
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar
from urllib.parse import quote

from fencehold.connect import DEFAULT_TABLE, backend_for
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.verify.plan import PREFIX, Plan
from fencehold.verify.scratch.place import counters, whole
from fencehold.verify.writer import RunStatements, sqlite_path

T = TypeVar("T")

BUSY_LIMIT_S = 10.0
BEGINS = b"SQLite format 3\0"
SIDE_FILES = ("", "-wal", "-shm", "-journal")


class SqliteScratch:
    dialect = "sqlite"
    schema = ""
    lease_table = DEFAULT_TABLE
    outbox = "outbox"
    has_locks = False
    servers: Sequence[tuple[str, int]] = ()

    def __init__(self, plan: Plan) -> None:
        backend_for(plan.url)  # refuses a URL that names no file
        self._given = os.path.abspath(sqlite_path(plan.url))
        self.path = f"{self._given}.{PREFIX}{plan.mark}"
        query = plan.url.partition("?")[2]
        self.url = f"sqlite:///{quote(self.path)}" + (f"?{query}" if query else "")
        self.left: list[str] = []
        self._statements = RunStatements(self.dialect)

    def url_through(self, ports: Sequence[int]) -> str:
        return self.url

    async def make(self) -> None:
        await asyncio.to_thread(self._look_around)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileNotFoundError:
            raise ConfigurationError(
                f"There is no folder {os.path.dirname(self._given)}.", hint="Create the folder, or correct the path.",
                code="bad_url",
            ) from None  # fmt: skip
        except OSError as error:
            raise ConfigurationError(
                f"A file cannot be made beside {self._given}: {error.strerror}.",
                hint="verify needs a file of its own in the same folder; give this user the right to make one.",
                code="no_permission",
            ) from None

    def _look_around(self) -> None:
        """Find files of other runs, and check that the user's file is a database.

        Raises ConfigurationError if it is not.

        The file is only read, and not through SQLite, which would leave two more files beside a file in WAL mode.
        """
        others = glob.glob(f"{glob.escape(self._given)}.{PREFIX}*")
        self.left = sorted(f"the file {one}" for one in others if not one.endswith(SIDE_FILES[1:]))
        if not os.path.exists(self._given):
            return
        try:
            with open(self._given, "rb") as file:
                begins = file.read(len(BEGINS))
        except OSError as error:
            raise _unusable(self._given, str(error.strerror)) from None
        if begins not in (b"", BEGINS):  # an empty one is a database without tables
            raise _unusable(self._given, "it is another kind of file")

    async def prepare(self) -> None:
        await _in_thread(self._prepare)

    def _prepare(self) -> None:
        with closing(self._connect()) as connection:
            connection.executescript(self._statements.script("prepare"))
            for counter in counters(self):
                connection.execute(self._statements["make_counter"], {"counter": counter})

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_LIMIT_S, isolation_level=None, check_same_thread=False)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        def work() -> list[tuple[Any, ...]]:
            with closing(self._connect()) as connection:
                return connection.execute(self._statements[statement]).fetchall()

        return await _in_thread(work)

    @asynccontextmanager
    async def held_up(self, counter: str) -> AsyncIterator[None]:
        """Lock the whole file while the block runs, because SQLite has one writer.

        Raises Unavailable if it stays locked.
        """
        connection = self._connect()
        try:
            try:
                await _in_thread(lambda: connection.execute(self._statements["hold"]))
            except sqlite3.OperationalError as error:  # a frozen contender holds it for longer than BUSY_LIMIT_S
                raise Unavailable(f"The file could not be locked: {error}") from error
            yield
        finally:
            connection.close()

    async def drop(self) -> str | None:
        for ending in SIDE_FILES:
            try:
                os.remove(self.path + ending)
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"{self.path}{ending} could not be removed: {error.strerror}"
        return None


async def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result; a cancel is raised only after `work` has ended.

    A connection must not be closed while a thread uses it, and a connection that is opened late would make the file
    again after it was removed.
    """
    return await whole(asyncio.to_thread(work))


def _unusable(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{path} cannot be read as a SQLite database: {why}.", code="not_a_database")
