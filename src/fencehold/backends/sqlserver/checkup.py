"""The checks of `fencehold doctor` on SQL Server: a write that is rolled back, and the settings for durability."""

from __future__ import annotations

import secrets

from fencehold.backends.sql.durability import durability
from fencehold.backends.sql.statements import tables_made
from fencehold.backends.sqlserver.session import Session
from fencehold.ports.checkup import Condition, TablesMade

PROBE = "fencehold doctor "


class SqlServerCheckup:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def try_write(self, limit_s: float) -> None:
        await self._session.run("write_try", {"name": f"{PROBE}{secrets.token_hex(8)}"}, limit_s)

    async def tables_made(self, limit_s: float) -> TablesMade:
        found: list[tuple[str, str]] = []
        for record in self._session.statements.records():
            [(is_there,)] = await self._session.batch(record.named("steps_there"), {}, limit_s)
            rows = await self._session.batch(record.named("tables_made"), {}, limit_s) if is_there else []
            found += [(component, step) for component, step in rows]
        return tables_made(self._session.statements.table, found)

    async def conditions(self, limit_s: float) -> list[Condition]:
        return [durability(await self._session.run("durability", {}, limit_s))]
