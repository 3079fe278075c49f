"""Items on SQL Server: binds parameters, runs statements and maps rows. The rules are in sql/items/."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

from fencehold.backends.sql.rounds import rounds
from fencehold.backends.sql.statements import ITEMS, Statements
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.items import rows as item_rows
from fencehold.backends.sqlserver.items.rows import stored
from fencehold.backends.sqlserver.params import NO_TEXT, instant
from fencehold.backends.sqlserver.schema import SqlServerSchema
from fencehold.backends.sqlserver.session import Session
from fencehold.model.errors import Unavailable
from fencehold.model.items.items import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, NewItem, Stretch

RENEW_PAUSE_S = 0.02


class SqlServerItemPort:
    """A verb on one item waits, within its limit, for a row that another session has locked.

    Raises Unavailable if the row is still locked then.
    """

    def __init__(self, session: Session, kind: str) -> None:
        self._session = session
        self._kind = stored(kind)

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        params = {
            "id": stored(item.id), "state": stored(item.state), "document": item.document_json,
            "holder": stored(item.holder_id),
        }  # fmt: skip
        ends_s = time.monotonic() + limit_s
        while (left_s := ends_s - time.monotonic()) > 0:
            rows = await self._run("put", params, left_s)
            if rows and (answer := _granted(rows, item.holder_id)):
                return answer
        raise _busy()

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        found = [item_rows.item(row) for row in await self._run("get", {"ids": item_rows.ids_param(ids)}, limit_s)]
        return {item.id: item for item in found}

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        params = {"id": stored(item_id), "holder": stored(holder_id), "lease_ms": item_rows.lease_ms(lease_s)}
        ends_s = time.monotonic() + limit_s
        while (left_s := ends_s - time.monotonic()) > 0:
            rows = await self._run("acquire", params, left_s)
            if not rows:
                return ItemRefusal(ABSENT)
            if answer := _granted(rows, holder_id):
                return answer
        raise _busy()

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Renew the leases that are ours.

        Repeats, for half of the limit, for those that are still ours and whose rows another session only had locked.
        """
        ends_s = time.monotonic() + limit_s
        renewed: dict[ItemKey, dt.datetime] = {}
        missing = list(dict.fromkeys(keys))
        while missing and (left_s := ends_s - time.monotonic()) > 0:
            params = {"keys": item_rows.keys_param(missing), "lease_ms": item_rows.lease_ms(lease_s)}
            rows = await self._run("renew", params, left_s)
            renewed.update((item_rows.key(row), instant(row[3])) for row in rows if row[3] is not None)
            missing = [item_rows.key(row) for row in rows if row[3] is None]
            if ends_s - time.monotonic() <= limit_s / 2:
                break
            await asyncio.sleep(RENEW_PAUSE_S if missing else 0)
        return renewed

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        ends_s = time.monotonic() + limit_s
        refused: dict[ItemKey, ItemRefusal] = {}
        for some in rounds(keys, lambda key: key.id):
            refused.update(await self._break_once_each(some, ends_s))
        return refused

    async def _break_once_each(self, keys: Sequence[ItemKey], ends_s: float) -> dict[ItemKey, ItemRefusal]:
        """Repeats for items that are still our own: they changed while the statement waited for them."""
        refused: dict[ItemKey, ItemRefusal] = {}
        while keys:
            if (left_s := ends_s - time.monotonic()) <= 0:
                raise _busy()
            rows = await self._run("break", {"keys": item_rows.keys_param(keys)}, left_s)
            others = [row for row in rows if not row[11]]
            refused.update((keys[row[10]], ItemRefusal(HELD_BY_ANOTHER, item_rows.item(row))) for row in others)
            keys = [keys[row[10]] for row in rows if row[11]]
        return refused

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        params = {**item_rows.key_params(key), "state": stored(state or NO_TEXT), "document": document_json or NO_TEXT}
        rows = await self._run("save", params, limit_s)
        return _refusal(rows) or item_rows.item(rows[0])

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        return _refusal(await self._run("delete", item_rows.key_params(key), limit_s))

    async def next_for_state(
        self,
        state: str,
        limit: int,
        holder_id: str,
        lease_s: float,
        limit_s: float,
        skip: Sequence[str] = (),
        stretch: Stretch = EVER,
    ) -> list[ItemRow]:
        params = {
            "state": stored(state), "limit": limit, "holder": stored(holder_id),
            "lease_ms": item_rows.lease_ms(lease_s), "skip": item_rows.ids_param(skip),
            **item_rows.stretch_params(stretch),
        }  # fmt: skip
        items = [item_rows.item(row) for row in await self._run("next_for_state", params, limit_s)]
        return sorted(items, key=lambda item: (item.state_timestamp, item.id))

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        params = {"state": stored(state or NO_TEXT), "limit": limit}
        return [item_rows.item(row) for row in await self._run("find", params, limit_s)]

    async def kinds(self, limit_s: float) -> list[str]:
        """Sorted by characters; the server sorts by code units, of which a character may have two."""
        return sorted(item_rows.given(row[0]) for row in await self._run("kinds", {}, limit_s))

    async def _run(self, name: str, params: dict[str, Any], limit_s: float) -> Rows:
        return await self._session.run(name, {**params, "kind": self._kind}, limit_s)


class SqlServerItems:
    """The items of one kind in one event loop: one connection for everything, opened when first needed."""

    def __init__(self, address: Address, package: str, table: str, kind: str) -> None:
        statements = Statements(package, table, topic=ITEMS)
        self._session = Session(address, statements, "fencehold-mssql-items")
        self.schema = SqlServerSchema(address, statements)
        self.port = self.leases = self.admin = SqlServerItemPort(self._session, kind)

    async def close(self) -> None:
        await self._session.close()


def _granted(rows: Rows, holder_id: str) -> ItemAnswer | None:
    """Return the item if the verb was done, or a refusal if another holds it.

    None if neither is true by now: the caller then asks again.
    """
    item = item_rows.item(rows[0])
    if item_rows.is_done(rows[0]):
        return item
    return ItemRefusal(HELD_BY_ANOTHER, item) if item.holder_id not in (None, holder_id) else None


def _refusal(rows: Rows) -> ItemRefusal | None:
    """Return the refusal of a verb on one item under one lease; None if it was done."""
    if not rows:
        return ItemRefusal(ABSENT)
    if item_rows.is_done(rows[0]):
        return None
    current = item_rows.item(rows[0])
    return ItemRefusal(LAPSED if current.holder_id is None else HELD_BY_ANOTHER, current)


def _busy() -> Unavailable:
    return Unavailable("Others changed the item again and again; nothing was changed here.", code="busy")
