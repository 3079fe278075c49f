"""A fencing epoch for the lock: a row of fencehold's lease table whose epoch only the lock's holder raises.

Whoever holds the lock knows that no earlier holder's session lives, so it takes the row over even before the row's
lease has lapsed. Like every takeover this waits for an earlier holder's open fenced transaction. All statements use the
lock's own connection.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Protocol

import psycopg
from psycopg import errors as pg

from fencehold.backends.postgres import faults
from fencehold.backends.postgres.fences import PostgresFences
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.postgres.unread import UnreadTimeline
from fencehold.backends.sql.abandoned import retrieve
from fencehold.backends.sql.statements import Statements, pyformat
from fencehold.model import names
from fencehold.ports.facts import FactSink
from pgleaderlock.errors import LockError

INIT_LIMIT_S = 20.0


class Runs(Protocol):
    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None: ...


class Companion:
    def __init__(self, info: str, name: str, table: str, facts: FactSink | None = None) -> None:
        self._unread = UnreadTimeline(facts)
        self._seized_at: tuple[Any, ...] = ()
        self.name = names.lease_name(name)
        self.holder_id = names.default_holder_id()
        self.lease_id = ""
        self._statements = Statements("fencehold.backends.postgres", names.table_name(table), pyformat)
        self._schema = PostgresSchema(info, self._statements)
        self._seize = Statements("pgleaderlock", names.table_name(table), pyformat)["seize"]
        self.fences = PostgresFences(info, self._statements)

    async def seize(self, session: Runs, lease_s: float, limit_s: float) -> int:
        """Take over the row and return the next epoch. Only the lock's holder may call it.

        Creates or upgrades the table when needed.
        """
        params = {"name": self.name, "holder": self.holder_id, "lease": lease_s, "nonce": secrets.token_hex(16)}
        try:
            row = await session.run(self._seize, params, limit_s)
        except (pg.UndefinedTable, pg.UndefinedColumn):
            await self._make_tables()
            row = await session.run(self._seize, params, limit_s)
        assert row is not None, "an upsert answers"
        epoch, self.lease_id, _ = row
        self._seized_at = await self._place(session, limit_s)
        return int(epoch)

    async def _make_tables(self) -> None:
        """Create the tables. A cancel of the caller does not stop this.

        If it did, psycopg would leave the half-open connection to the garbage collector.
        """
        making = asyncio.ensure_future(self._schema.init(INIT_LIMIT_S))
        making.add_done_callback(retrieve)
        await asyncio.shield(making)

    async def resume(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> bool:
        """Renew the epoch's lease and return True. False if the lease has another epoch by now, or has lapsed.

        False also if this server was promoted since `seize`: another process may have led on the old server meanwhile,
        with an epoch that this server does not know.
        """
        if await self._place(session, limit_s) != self._seized_at:
            return False
        return await self._verdict(session, epoch, lease_s, limit_s) == "yes"

    async def _place(self, session: Runs, limit_s: float) -> tuple[Any, ...]:
        """Return the server's timeline and system identifier, which change when a standby is promoted.

        Returns an empty tuple if they cannot be read, which is reported once.
        """
        try:
            row = await session.run(self._statements["probe_place"], {}, limit_s)
        except psycopg.Error as error:
            if not faults.is_unread(error):
                raise
            self._unread(faults.text_of(error))
            return ()
        assert row is not None, "a probe always answers one row"
        return row[1:]

    async def renew(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> None:
        if await self._verdict(session, epoch, lease_s, limit_s) not in ("yes", "busy"):
            raise LockError("the fencing epoch was taken over")

    async def _verdict(self, session: Runs, epoch: int, lease_s: float, limit_s: float) -> str:
        row = await session.run(self._statements["renew"], {**self._columns(epoch), "leases": [lease_s]}, limit_s)
        verdict, *_ = row or ("absent",)
        return str(verdict)

    async def release(self, session: Runs, epoch: int, limit_s: float) -> None:
        await session.run(self._statements["release"], self._columns(epoch), limit_s)

    def _columns(self, epoch: int) -> dict[str, Any]:
        return {"names": [self.name], "holders": [self.holder_id], "epochs": [epoch]}
