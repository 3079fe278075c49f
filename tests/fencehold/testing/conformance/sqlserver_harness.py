"""SQL Server in a database of the run's own, emptied for each test; its statements ask a clock that obeys."""

import asyncio
import contextlib
import datetime as dt
import functools
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mssql_python

from fencehold.backends.sqlserver import batch, driver
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.backend import SqlServerBackend
from fencehold.ports.backend import Backend
from fencehold.testing.harness import LEASE_TABLE, Can, Door, Harness, Remote, Traits
from fencehold.testing.proxy import FaultProxy
from tests.fencehold.testing.conformance.callers import alchemy_doors, plain_door

WAITING_WITHIN_S = 20.0
CLOCK = "SYSUTCDATETIME()"
PACKAGE = "fencehold_test_statements"
WAITING = """
SELECT spid FROM sys.sysprocesses
 WHERE blocked <> 0 AND dbid = DB_ID() AND (lastwaittype LIKE 'LCK%' OR lastwaittype = 'Lock')"""

TABLES = (
    "CREATE TABLE notes (place bigint IDENTITY PRIMARY KEY, note bigint NOT NULL)",
    "CREATE TABLE counters (id integer PRIMARY KEY, n bigint NOT NULL)",
    "INSERT INTO counters VALUES (1, 0)",
    "CREATE TABLE test_clock (frozen datetime2(7), ahead_us bigint NOT NULL)",
    "INSERT INTO test_clock VALUES (NULL, 0)",
    "IF OBJECT_ID('dbo.test_now') IS NOT NULL DROP FUNCTION dbo.test_now",
    """CREATE FUNCTION dbo.test_now() RETURNS datetime2(7) AS
    BEGIN
        DECLARE @now datetime2(7);
        SELECT @now = COALESCE(frozen, DATEADD(second, CAST(ahead_us / 1000000 AS int), SYSUTCDATETIME()))
          FROM dbo.test_clock;
        RETURN @now;
    END""",
)


@functools.cache
def statements_with_test_clock() -> str:
    """The name of a package that holds the product's statements, each with the test's clock in the server's place."""
    root = Path(tempfile.mkdtemp(prefix="fencehold-sql-"))
    package = root / PACKAGE
    with resources.as_file(resources.files("fencehold.backends.sqlserver") / "sql") as source:
        shutil.copytree(source, package / "sql")
    (package / "__init__.py").touch()
    for path in (package / "sql").rglob("*.sql"):
        path.write_text(path.read_text("utf-8").replace(CLOCK, "dbo.test_now()"), "utf-8")
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    return PACKAGE


def backend_for(url: str) -> Callable[[], Backend]:
    """For another process."""
    return lambda: SqlServerBackend(Address.of(url), LEASE_TABLE, statements_with_test_clock())


class SqlServerSql:
    error = mssql_python.Error

    def __init__(self, url: str) -> None:
        self._address = Address.of(url)
        self._url = url
        self._connection: driver.Connection | None = None
        self._turn = asyncio.Lock()

    async def run(self, statement: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        async with self._turn:
            return await asyncio.to_thread(self._run, statement, tuple(params))

    def _run(self, statement: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = driver.connect(self._address, autocommit=True, limit_s=10)
        return batch.rows(self._connection, statement, params)

    async def run_script(self, script: str) -> None:
        for text in script.split("GO\n"):
            if text.strip():
                await self.run(text)

    def doors(self) -> Sequence[Door]:
        alchemy = self._url.replace("mssql://", "mssql+mssqlpython://", 1).replace("encrypt=", "Encrypt=")
        sync: list[Door] = [
            door for door in alchemy_doors(alchemy, alchemy, lambda _: None) if "Async" not in door.title
        ]
        connect = functools.partial(driver.connect, self._address, limit_s=10)
        return [plain_door("mssql-python Connection", lambda autocommit: connect(autocommit=autocommit)), *sync]

    async def until_one_waits(self) -> None:
        async with asyncio.timeout(WAITING_WITHIN_S):
            while not await self.run(WAITING):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.005)

    async def keeps_shared_locks(self) -> bool:
        """Whether a hint keeps a shared lock until the transaction ends; a server that is no SQL Server may not."""
        await self.run("SET LOCK_TIMEOUT 200")
        try:
            with contextlib.closing(driver.connect(self._address, limit_s=10)) as other:
                batch.rows(
                    other, "BEGIN TRANSACTION; SELECT n FROM counters WITH (REPEATABLEREAD, ROWLOCK) WHERE id = 1"
                )
                await self.run("UPDATE counters SET n = n WHERE id = 1")
        except mssql_python.Error:
            return True
        finally:
            await self.run("SET LOCK_TIMEOUT -1")
        return False

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqlServerHarness(Harness):
    traits = Traits(
        "SQL Server",
        tick=dt.timedelta(microseconds=1),
        can={*Can} - {Can.PLACES, Can.WAKEUPS, Can.EVENT_HINTS, Can.OBSTRUCTION},
        walk_steps=700,
        commit_bytes="COMMIT".encode("utf-16-le"),
    )

    def __init__(self, url: str, fresh_database: Callable[[], str] = str) -> None:
        super().__init__()
        self.url = url
        self._fresh_database = fresh_database
        self._sql = SqlServerSql(url)

    async def prepare(self) -> None:
        self.stack.push_async_callback(self._sql.close)
        for statement in TABLES:
            await self._sql.run(statement)

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return SqlServerBackend(Address.of(self.url), table, statements_with_test_clock())

    def second(self) -> "SqlServerHarness":
        return SqlServerHarness(self._fresh_database(), self._fresh_database)

    async def set_clock(self, at: dt.datetime) -> None:
        naive = at.astimezone(dt.UTC).replace(tzinfo=None)
        await self._sql.run(f"UPDATE test_clock SET frozen = '{naive.isoformat(timespec='microseconds')}'")

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        ahead_us = round(ahead.total_seconds() * 1_000_000)
        await self._sql.run(f"UPDATE test_clock SET frozen = NULL, ahead_us = {ahead_us}")

    @property
    def sql(self) -> SqlServerSql:
        return self._sql

    @property
    def remote(self) -> Remote:
        return Remote(self.url, "tests.fencehold.testing.conformance.sqlserver_harness:backend_for")

    async def network(self) -> tuple[FaultProxy, Backend]:
        parts = urlsplit(self.url)
        proxy = FaultProxy(parts.hostname or "127.0.0.1", parts.port or 1433)
        await self.stack.enter_async_context(proxy)
        login = f"{parts.username}{f':{parts.password}' if parts.password else ''}@"
        through = parts._replace(netloc=f"{login}{proxy.host}:{proxy.port}").geturl()
        return proxy, await self.opened(
            SqlServerBackend(Address.of(through), LEASE_TABLE, statements_with_test_clock())
        )
