"""A fencing epoch beside the lock: a row of fencehold's lease table that only the lock's holder raises.

Holding the lock proves that no earlier holder's session lives, so the row is seized whatever its expiry; an earlier
holder's open fenced transaction is waited for, as in every takeover. All on the lock's own connection.
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol

from psycopg import errors as pg

from fencehold.backends.postgres.fences import PostgresFences
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.sql_text import Statements, pyformat
from fencehold.model import names
from pgleaderlock.errors import LockError

INIT_LIMIT_S = 20.0


class Runs(Protocol):
    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None: ...


class Companion:
    def __init__(self, info: str, name: str, table: str) -> None:
        self.name = names.lease_name(name)
        self.holder_id = names.default_holder_id()
        self.lease_id = ""
        self._statements = Statements("fencehold.backends.postgres", names.table_name(table), pyformat)
        self._schema = PostgresSchema(info, self._statements)
        self._seize = Statements("pgleaderlock", names.table_name(table), pyformat)["seize"]
        self.fences = PostgresFences(info, self._statements)

    async def seize(self, session: Runs, lease_s: float, limit_s: float) -> int:
        """The next epoch; only the lock's holder may ask. The table is created, or brought up to date, when needed."""
        params = {"name": self.name, "holder": self.holder_id, "lease": lease_s, "nonce": secrets.token_hex(16)}
        try:
            row = await session.run(self._seize, params, limit_s)
        except (pg.UndefinedTable, pg.UndefinedColumn):
            await self._schema.init(INIT_LIMIT_S)
            row = await session.run(self._seize, params, limit_s)
        assert row is not None, "an upsert answers"
        epoch, self.lease_id = row
        return int(epoch)

    async def resume(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> bool:
        return await self._verdict(session, epoch, lease_s, limit_s) == "yes"

    async def renew(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> None:
        if await self._verdict(session, epoch, lease_s, limit_s) not in ("yes", "busy"):
            raise LockError("the fencing epoch was taken over")

    async def _verdict(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> str:
        row = await session.run(self._statements["renew"], {**self._columns(epoch), "leases": [lease_s]}, limit_s)
        return str(row[0]) if row is not None else "absent"

    async def release(self, session: Runs, epoch: int, limit_s: float) -> None:
        await session.run(self._statements["release"], self._columns(epoch), limit_s)

    def _columns(self, epoch: int) -> dict[str, Any]:
        return {"names": [self.name], "holders": [self.holder_id], "epochs": [epoch]}
