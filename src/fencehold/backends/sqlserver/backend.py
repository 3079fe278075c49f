"""The SQL Server backend, put together from its parts."""

from __future__ import annotations

from contextlib import suppress

from fencehold.backends.absent import NoHints
from fencehold.backends.sql.statements import Statements, items_table
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.checkup import SqlServerCheckup
from fencehold.backends.sqlserver.fences import SqlServerFences
from fencehold.backends.sqlserver.items.items import SqlServerItems
from fencehold.backends.sqlserver.leases import SqlServerLeases
from fencehold.backends.sqlserver.outbox.events import SqlServerEvents
from fencehold.backends.sqlserver.schema import SqlServerSchema
from fencehold.backends.sqlserver.session import Session
from fencehold.model.errors import FenceholdError
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink


class SqlServerBackend:
    """The backend of a `mssql://` URL: leases, fences, outboxes and items on one SQL Server database.

    `package`: the Python package that contains the SQL statements. Tests give another package, whose statements are the
    same but read a clock that the test sets. `facts`: receives, when `open` runs, the server's settings with which a
    crash could lose a granted lease.
    """

    name = "SQL Server"

    def __init__(self, address: Address, table: str, package: str = __package__, facts: FactSink | None = None) -> None:
        self._address = address
        self._facts = facts
        self._package = package
        self._items_table = items_table(table)
        statements = Statements(package, table)
        self._session = Session(address, statements)
        self.leases = SqlServerLeases(self._session)
        self.schema = SqlServerSchema(address, statements)
        self.fences = SqlServerFences(address, statements)
        self.wakeup = NoHints()
        self.checkup = SqlServerCheckup(self._session)

    def events(self, table: str) -> SqlServerEvents:
        return SqlServerEvents(self._address, self._package, table)

    def items(self, kind: str) -> SqlServerItems:
        return SqlServerItems(self._address, self._package, self._items_table, kind)

    async def open(self, limit_s: float) -> None:
        await self._session.run("probe", {}, limit_s)
        if self._facts is not None:
            with suppress(FenceholdError):  # a server that cannot report it is used as it is
                for risk, remedy in await self._session.run("durability", {}, limit_s):
                    StoreFacts(self._facts).store_not_durable(detail=risk, hint=remedy)

    async def close(self) -> None:
        await self._session.close()
