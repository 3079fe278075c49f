"""PostgreSQL in a schema of the test's own, which stands before pg_catalog and holds its own clock_timestamp()."""

import asyncio
import datetime as dt
import itertools
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg

from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.ports.backend import Backend
from fencehold.testing.harness import LEASE_TABLE, Caller, Can, Door, Harness, Remote, Traits
from fencehold.testing.proxy import FaultProxy
from tests.fencehold.testing.conformance.callers import AsyncCaller, OneDoor, alchemy_doors, plain_door
from tests.fencehold.testing.conformance.foreign_callers import asyncpg_door, django_door, of_postgres

#: The classes of the suite that find out nothing new on another version of the server.
NEWEST_ONLY = (
    "EventVerbs", "EventAdmins", "EventDedupe", "EventCallers", "EventConsumers", "EventHintsHeard",
    "EventHintsOfCallers", "EventProcessCrowd", "EventNames", "EventCrowd", "ItemVerbs", "ItemCrowd",
    "ItemProcessCrowd", "ItemNames", "ItemTimes", "ItemKinds",
)  # fmt: skip
NUMBERS = itertools.count()
WAITING_WITHIN_S = 20.0
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

# The functions are as those they hide: volatile, each call sees the last committed row, also within one statement;
# stable, it is the same for all of a statement.
TABLES = """
CREATE TABLE notes (place bigserial PRIMARY KEY, note bigint NOT NULL);
CREATE TABLE counters (id integer PRIMARY KEY, n bigint NOT NULL);
INSERT INTO counters VALUES (1, 0);
CREATE TABLE clock (frozen timestamptz, ahead interval NOT NULL);
INSERT INTO clock VALUES (NULL, '0');
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$ SELECT coalesce(frozen, pg_catalog.clock_timestamp() + ahead) FROM {schema}.clock $$;
CREATE FUNCTION statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
    $$ SELECT coalesce(frozen, pg_catalog.statement_timestamp() + ahead) FROM {schema}.clock $$;
"""


class PostgresSql:
    error = psycopg.Error

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def run(self, statement: str, params: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        cursor = await self._connection.execute(statement.encode(), params)
        return await cursor.fetchall() if cursor.description else []

    async def run_script(self, script: str) -> None:
        await self.run(script)

    def doors(self) -> Sequence[Door]:
        alchemy = self._url.replace("postgresql://", "postgresql+psycopg://", 1)
        return [
            OneDoor("psycopg AsyncConnection", False, self._async_connection),
            plain_door("psycopg Connection", lambda autocommit: psycopg.connect(self._url, autocommit=autocommit)),
            *alchemy_doors(alchemy, alchemy, lambda _: None),
            django_door(lambda: of_postgres(self._url)),
            asyncpg_door(self._url),
            asyncpg_door(self._url, pooled=True),
        ]

    async def until_one_waits(self) -> None:
        async with asyncio.timeout(WAITING_WITHIN_S):
            while not await self.run(WAITING):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def _async_connection(self, autocommit: bool) -> AsyncIterator[Caller]:
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=autocommit)
        try:
            yield AsyncCaller(connection)
        finally:
            await connection.close()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


class PostgresHarness(Harness):
    traits = Traits("PostgreSQL", tick=dt.timedelta(microseconds=1), can={*Can} - {Can.OBSTRUCTION}, walk_steps=700)

    def __init__(self, url: str) -> None:
        super().__init__()
        self._schema = f"c{next(NUMBERS)}_{uuid.uuid4().hex[:8]}"
        self._database_url = url
        self.url = with_settings(url, self._schema)
        self._sql = PostgresSql(self.url)

    async def prepare(self) -> None:
        self.stack.push_async_callback(self._sql.close)
        await self._sql.run(f"CREATE SCHEMA {self._schema}")
        await self._sql.run_script(TABLES.format(schema=self._schema))

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return PostgresBackend(self.url, table)

    def second(self) -> "PostgresHarness":
        return PostgresHarness(self._database_url)

    async def set_clock(self, at: dt.datetime) -> None:
        await self._sql.run("UPDATE clock SET frozen = %s", [at])

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        await self._sql.run("UPDATE clock SET frozen = NULL, ahead = %s", [ahead])

    @property
    def sql(self) -> PostgresSql:
        return self._sql

    @property
    def remote(self) -> Remote:
        return Remote(self.url)

    async def network(self) -> tuple[FaultProxy, Backend]:
        parts = urlsplit(self.url)
        proxy = FaultProxy(parts.hostname or "127.0.0.1", parts.port or 5432)
        await self.stack.enter_async_context(proxy)
        login = f"{parts.username}{f':{parts.password}' if parts.password else ''}@"
        through = parts._replace(netloc=f"{login}{proxy.host}:{proxy.port}").geturl()
        return proxy, await self.opened(PostgresBackend(through, LEASE_TABLE))


def with_settings(url: str, schema: str) -> str:
    """Commits need not reach the disk here: no server is killed in this suite."""
    options = f"-csearch_path={schema},pg_catalog,public -csynchronous_commit=off"
    return f"{url}{'&' if '?' in url else '?'}options={quote(options)}"
