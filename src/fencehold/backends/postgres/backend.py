"""PostgreSQL's parts, put together."""

from __future__ import annotations

from fencehold.backends.postgres import wire
from fencehold.backends.postgres.checkup import PostgresCheckup
from fencehold.backends.postgres.events import PostgresEvents
from fencehold.backends.postgres.fences import PostgresFences
from fencehold.backends.postgres.items import PostgresItems
from fencehold.backends.postgres.leases import PostgresLeases
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.postgres.session import Session
from fencehold.backends.sql_text import Statements, items_table, pyformat
from fencehold.model.errors import Unavailable

READ_ONLY_LIMIT_S = 2.0


class PostgresBackend:
    def __init__(self, url: str, table: str) -> None:
        info = self._info = wire.conninfo(url)
        statements = Statements(__package__, table, pyformat)
        self._items_table = items_table(table)
        self._session = Session(info, statements)
        self.leases = PostgresLeases(self._session)
        self.schema = PostgresSchema(info, statements)
        self.fences = PostgresFences(info, statements)
        self.wakeup = self._session
        self.checkup = PostgresCheckup(info, statements)

    def events(self, table: str) -> PostgresEvents:
        return PostgresEvents(self._info, __package__, table)

    def items(self, kind: str) -> PostgresItems:
        return PostgresItems(self._info, __package__, self._items_table, kind)

    @staticmethod
    def check(url: str) -> None:
        """Raise ConfigurationError now if the URL cannot be read later."""
        wire.conninfo(url)

    async def open(self, limit_s: float) -> None:
        try:
            await self._session.run("probe", {}, limit_s)
        except Unavailable as error:
            if error.code == "read_only":
                error.hint = await wire.read_only_because(self._info, min(limit_s, READ_ONLY_LIMIT_S))
            raise

    async def close(self) -> None:
        await self._session.close()
