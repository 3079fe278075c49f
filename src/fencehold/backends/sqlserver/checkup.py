"""SQL Server, looked at for `fencehold doctor`: a write that is rolled back, durability."""

from __future__ import annotations

import secrets

from fencehold.backends.durability import durability
from fencehold.backends.sqlserver.session import Session
from fencehold.ports.checkup import Condition

PROBE = "fencehold doctor "


class SqlServerCheckup:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def try_write(self, limit_s: float) -> None:
        await self._session.run("write_try", {"name": f"{PROBE}{secrets.token_hex(8)}"}, limit_s)

    async def conditions(self, limit_s: float) -> list[Condition]:
        return [durability(await self._session.run("durability", {}, limit_s))]
