"""The SQLite backend: makes and holds its parts (leases, fences, tables, outboxes, items, checks)."""

from __future__ import annotations

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite.checkup import SqliteCheckup
from fencehold.backends.sqlite.fences import SqliteFences
from fencehold.backends.sqlite.file import system as file_system
from fencehold.backends.sqlite.items.items import SqliteItems
from fencehold.backends.sqlite.leases import SqliteLeases
from fencehold.backends.sqlite.outbox.events import SqliteEvents
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session
from fencehold.backends.sqlite.wakeup import FileWatch
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink


class SqliteBackend:
    name = "SQLite"

    def __init__(self, path: str, table: str, *, facts: FactSink | None = None, any_file_system: bool = False) -> None:
        statements = Statements(__package__, table)
        self._path = path
        self._facts = facts
        self._any_file_system = any_file_system
        self._session = Session(path, statements=statements, facts=facts)
        self.leases = SqliteLeases(self._session, statements)
        self.schema = SqliteSchema(self._session, statements)
        self.fences = SqliteFences(path, statements, facts)
        self.wakeup = FileWatch(self._session, statements)
        self.checkup = SqliteCheckup(self._session, statements)

    def events(self, table: str) -> SqliteEvents:
        return SqliteEvents(self._path, table, self._facts)

    def items(self, kind: str) -> SqliteItems:
        return SqliteItems(self._path, kind, self._facts)

    async def open(self, limit_s: float) -> None:
        """Check the file system that the file is on, and nothing else.

        The file itself is not opened: it may not exist before init(), and every verb opens it. Raises
        ConfigurationError (shared_file_system) if several machines may use the file.
        """
        if not self._any_file_system:
            file_system.check(self._path)
        if self._facts is not None and (doubt := file_system.doubt(self._path)):
            StoreFacts(self._facts).file_system_doubtful(detail=doubt)

    async def close(self) -> None:
        self.wakeup.close()
        await self._session.close()
