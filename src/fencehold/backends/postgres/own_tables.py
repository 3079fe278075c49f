"""Tables of a service's own on PostgreSQL: a pool of connections for statements, one connection for each reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import psycopg

from fencehold.backends.postgres import faults, wire
from fencehold.backends.postgres.commits import Commits, Replicated
from fencehold.backends.postgres.own_pool import Pool, rows_of
from fencehold.backends.postgres.planned_session import PlannedSession
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.sql.own_tables import OwnStatements, OwnTablesBase, ReaderBase
from fencehold.backends.sql.statements import pyformat
from fencehold.backends.sql.steps import awaited
from fencehold.model.durable import Durable
from fencehold.ports.facts import FactSink
from fencehold.ports.own_tables import HeldTerm, Row, Statement, Steps

T = TypeVar("T")


class PostgresOwnTables(OwnTablesBase):
    dialect = "postgres"

    def __init__(
        self, url: str, package: str, table: str, *, connections: int, durable: Durable | None, facts: FactSink | None
    ) -> None:
        self._info = wire.conninfo(url)
        statements = OwnStatements(self.dialect, package, table, pyformat)
        super().__init__(statements, PostgresSchema(self._info, statements))
        commits = Commits() if durable is None else Replicated(durable, facts)
        self._pool = Pool(self._info, statements, connections, commits)
        self._readers: list[PostgresReader] = []

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        return await self._pool.run(statement, limit_s)

    async def _fenced_steps(self, term: HeldTerm, steps: Steps[T]) -> T:
        limit_s = 0.0
        try:
            async with term.transaction() as tx:
                limit_s = getattr(tx, "limit_s", limit_s)

                async def ask(statement: Statement) -> list[Row]:
                    cursor: Any = await tx.execute(self._statements[statement.name], statement.params)
                    return await rows_of(cursor)

                return await awaited(steps, ask)
        except (psycopg.DataError, psycopg.IntegrityError):
            raise
        except psycopg.Error as error:
            raise faults.of_fenced(error, limit_s) from None

    def reader(self) -> PostgresReader:
        reader = PostgresReader(PlannedByName(self._info, self._statements))
        self._readers.append(reader)
        return reader

    async def close(self) -> None:
        for reader in self._readers:
            await reader.close()
        await self._pool.close()


class PlannedByName(PlannedSession):
    """A PlannedSession that returns each row as a dict, by the names of its columns."""

    async def _fetch(self, connection: wire.Connection, name: str, params: Mapping[str, Any]) -> list[Any]:
        async with self._planned(connection):
            cursor = connection.cursor(binary=True)
            await cursor.execute(self.statements[name], params or None)
            return await rows_of(cursor)


class PostgresReader(ReaderBase):
    def __init__(self, session: PlannedByName) -> None:
        self._session = session

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        found: list[Any] = await self._session.run(statement.name, statement.params, limit_s)
        return found

    def on_hint(self, hint: Callable[[], None]) -> None:
        self._session.on_hint(lambda what, name: hint())

    async def listen(self, limit_s: float) -> bool:
        return await self._session.listen(limit_s)

    async def close(self) -> None:
        await self._session.close()
