"""The verbs of items that work differently on SQL Server than on PostgreSQL. The rules are in sql/items/."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence

from fencehold.backends.sql.items import SqlItemPort, busy, lease_ms
from fencehold.backends.sql.rounds import rounds
from fencehold.backends.sql.statements import ITEMS, Statements
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.items.rows import DIALECT
from fencehold.backends.sqlserver.schema import SqlServerSchema
from fencehold.backends.sqlserver.session import Session
from fencehold.model.items.rules import HELD_BY_ANOTHER, ItemKey
from fencehold.ports.items import ItemAnswer, ItemRefusal, NewItem
from fencehold.ports.time_limit import fixed

RENEW_PAUSE_S = 0.02


class SqlServerItemPort(SqlItemPort):
    dialect = DIALECT

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        stored = self.dialect.stored
        params = {
            "id": stored(item.id), "state": stored(item.state), "document": item.document_json,
            "holder": stored(item.holder_id),
        }  # fmt: skip
        left_s = fixed(limit_s)
        while left_s() > 0:
            rows = await self._run("put", params, left_s())
            if rows and (answer := self._granted(rows, item.holder_id)):
                return answer
        raise busy()

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Renew the leases and return until when each is held. Leaves out keys whose lease is not theirs any more.

        A row that another session keeps locked is tried again, for up to half of `limit_s`; its key is left out after
        that.
        """
        left_s = fixed(limit_s)
        renewed: dict[ItemKey, dt.datetime] = {}
        missing = list(dict.fromkeys(keys))
        while missing and left_s() > 0:
            params = {**self.dialect.keys(missing), "lease_ms": lease_ms(lease_s)}
            missing = []
            for *columns, until in await self._run("renew", params, left_s()):
                key = self.dialect.key_of(*columns)
                if until is None:
                    missing.append(key)
                else:
                    renewed[key] = self.dialect.instant(until)
            if left_s() <= limit_s / 2:
                break
            await asyncio.sleep(RENEW_PAUSE_S if missing else 0)
        return renewed

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        left_s = fixed(limit_s)
        refused: dict[ItemKey, ItemRefusal] = {}
        for some in rounds(keys, lambda key: key.id):
            refused.update(await self._break_once_each(some, left_s))
        return refused

    async def _break_once_each(
        self, keys: Sequence[ItemKey], left_s: Callable[[], float]
    ) -> dict[ItemKey, ItemRefusal]:
        """End these leases; no two of the keys have the same item.

        Return a refusal for each lease that is another holder's. An item that changed while the statement waited for
        its row, and that is still this holder's, is tried again. Raises Unavailable (busy) when the time is over.
        """
        refused: dict[ItemKey, ItemRefusal] = {}
        while keys:
            if left_s() <= 0:
                raise busy()
            again: list[ItemKey] = []
            for row in await self._run("break", self.dialect.keys(keys), left_s()):
                item, [place, is_own] = self.dialect.item_and(row)
                if is_own:
                    again.append(keys[place])
                else:
                    refused[keys[place]] = ItemRefusal(HELD_BY_ANOTHER, item)
            keys = again
        return refused


class SqlServerItems:
    """The items of one kind in one event loop, all on one connection, which is opened when first needed."""

    def __init__(self, address: Address, package: str, table: str, kind: str) -> None:
        statements = Statements(package, table, topic=ITEMS)
        self._session = Session(address, statements, "fencehold-mssql-items")
        self.schema = SqlServerSchema(address, statements)
        self.port = self.leases = self.admin = SqlServerItemPort(self._session, kind)

    async def close(self) -> None:
        await self._session.close()
