"""SQLite's parts, put together."""

from __future__ import annotations

from fencehold.backends.sql_text import Statements
from fencehold.backends.sqlite.events import SqliteEvents
from fencehold.backends.sqlite.fences import SqliteFences
from fencehold.backends.sqlite.items import SqliteItems
from fencehold.backends.sqlite.leases import SqliteLeases
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session
from fencehold.backends.sqlite.wakeup import FileWatch


class SqliteBackend:
    def __init__(self, path: str, table: str) -> None:
        statements = Statements(__package__, table)
        self._path = path
        self._session = Session(path)
        self.leases = SqliteLeases(self._session, statements)
        self.schema = SqliteSchema(self._session, statements)
        self.fences = SqliteFences(path, statements)
        self.wakeup = FileWatch(self._session, statements)

    def events(self, table: str) -> SqliteEvents:
        return SqliteEvents(self._path, table)

    def items(self, kind: str) -> SqliteItems:
        return SqliteItems(self._path, kind)

    async def open(self, limit_s: float) -> None:
        return None  # the file may not exist before init(); every verb opens it when it is there

    async def close(self) -> None:
        self.wakeup.close()
        await self._session.close()
