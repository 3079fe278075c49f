"""A fencing epoch for the lock: a row of fencehold's lease table whose epoch only the lock's holder raises.

Whoever holds the lock knows that no earlier holder's session lives, so it takes the row over even before the row's
lease has lapsed. Like every takeover this waits for an earlier holder's write that is under way. All batches use the
lock's own connection.
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.fences import SqlServerFences
from fencehold.backends.sqlserver.params import listed, microseconds, rows_json
from fencehold.backends.sqlserver.schema import SqlServerSchema
from fencehold.model import names
from fencehold.model.election.lock_errors import LockError
from fencehold.model.errors import ConfigurationError
from fencehold.ports.lock_session import LockSession

INIT_LIMIT_S = 20.0
#: Each of a seize's two waits gets this part of its limit, so that the server answers before the caller gives up.
WAIT_PART = 0.4


class Runs(LockSession, Protocol):
    async def row(self, sql: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...]: ...


class Companion:
    def __init__(self, address: Address, name: str, table: str) -> None:
        self.name = names.lease_name(name)
        self.holder_id = names.default_holder_id()
        self.lease_id = ""
        self._statements = Statements("fencehold.backends.sqlserver", names.table_name(table))
        self._schema = SqlServerSchema(address, self._statements)
        self._seize = Statements("mssqlleaderlock", names.table_name(table)).named("seize")
        self.fences = SqlServerFences(address, self._statements)

    async def seize(self, session: Runs, lease_s: float, limit_s: float) -> int:
        """Take over the row and return the next epoch. Only the lock's holder may call it.

        Creates or upgrades the table when needed. Raises LockError if an earlier leader's fenced transaction is open.
        """
        params = {
            "name": self.name, "holder": self.holder_id, "nonce": secrets.token_hex(16),
            "lease_us": microseconds(lease_s), "wait_ms": int(limit_s * WAIT_PART * 1000),
        }  # fmt: skip
        try:
            epoch, lease_id = await session.row(self._seize, params, limit_s)
        except ConfigurationError as error:
            if error.code not in ("schema_missing", "schema_old"):
                raise
            await self._schema.init(INIT_LIMIT_S)
            epoch, lease_id = await session.row(self._seize, params, limit_s)
        if not epoch:
            raise LockError("an earlier leader's fenced transaction is open: the fencing epoch cannot be raised yet")
        self.lease_id = str(lease_id)
        # Renew once now: the first run of a statement in a session is the slowest, and a probe's limit is short.
        await self.renew(session, int(epoch), lease_s, limit_s)
        return int(epoch)

    async def resume(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> bool:
        return await self._verdict(session, epoch, lease_s, limit_s) == "yes"

    async def renew(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> None:
        if await self._verdict(session, epoch, lease_s, limit_s) not in ("yes", "busy"):
            raise LockError("the fencing epoch was taken over")

    async def _verdict(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> str:
        verdict, *_ = await session.row(self._statements.named("renew"), self._keys(epoch, lease_s), limit_s)
        return str(verdict)

    async def release(self, session: Runs, epoch: int, limit_s: float) -> None:
        await session.row(self._statements.named("release"), self._keys(epoch, 0.0), limit_s)

    def _keys(self, epoch: int, lease_s: float) -> dict[str, Any]:
        name, holder = listed(self.name), listed(self.holder_id)
        key = {"name": name, "holder": holder, "epoch": epoch, "lease_us": microseconds(lease_s)}
        return {"keys": rows_json([key])}
