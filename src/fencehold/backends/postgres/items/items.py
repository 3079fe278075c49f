"""Items on PostgreSQL: binds parameters, runs statements and maps rows. The rules are in sql/items/."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Any

from fencehold.backends.postgres import wire
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.postgres.items import rows as item_rows
from fencehold.backends.postgres.planned_session import PlannedSession
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.postgres.session import Rows
from fencehold.backends.sql.rounds import rounds
from fencehold.backends.sql.statements import ITEMS, Statements, pyformat
from fencehold.model.errors import Unavailable
from fencehold.model.items.items import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, NewItem, Stretch

RENEW_PAUSE_S = 0.02
# The part of the limit for one wait for a lock. For a row that several wait for there are two waits (first for the
# place in the queue, then for the row), and the server's refusal must arrive before the limit.
PATIENCE_PART = 0.4


class PostgresItemPort:
    """A verb on one item waits, within its limit, for a row that another session has locked.

    Raises Unavailable if the row is still locked then.
    """

    def __init__(self, session: PlannedSession, kind: str) -> None:
        self._session = session
        self._kind = kind

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        """Put the item, or refuse it. A refused put reads the item again; if it is free by then, the put is repeated.

        Raises Unavailable (busy) if that does not end within the limit.
        """
        params = {"id": item.id, "state": item.state, "document": item.document_json, "holder": item.holder_id}
        left_s = wire.fixed(limit_s)
        while left_s() > 0:
            if rows := await self._wait("put", params, left_s()):
                return item_rows.item(rows[0])
            current = (await self.get([item.id], max(0.001, left_s()))).get(item.id)
            if current is not None and current.holder_id not in (None, item.holder_id):
                return ItemRefusal(HELD_BY_ANOTHER, current)
        raise _busy()

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        rows = await self._run("get", {"ids": item_rows.ids_param(ids)}, limit_s)
        return {one.id: one for one in map(item_rows.item, rows)}

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        params = {"id": item_id, "holder": holder_id, "lease_ms": item_rows.lease_ms(lease_s)}
        left_s = wire.fixed(limit_s)
        while left_s() > 0:
            rows = await self._wait("acquire", params, left_s())
            if not rows:
                return ItemRefusal(ABSENT)
            item, is_granted = item_rows.item_and(rows[0])
            if is_granted:
                return item
            if item.holder_id not in (None, holder_id):
                return ItemRefusal(HELD_BY_ANOTHER, item)
        raise _busy()

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Renew the leases that are ours.

        Repeats, for half of the limit, for those that are still ours and whose rows another session only had locked.
        """
        left_s = wire.fixed(limit_s)
        renewed: dict[ItemKey, dt.datetime] = {}
        missing = list(keys)
        while missing and left_s() > 0:
            params = {**item_rows.keys_params(missing), "lease_ms": item_rows.lease_ms(lease_s)}
            for item_id, holder_id, token, until in await self._run("renew", params, left_s()):
                renewed[ItemKey(item_id, holder_id, token)] = until.astimezone(dt.UTC)
            missing = [key for key in missing if key not in renewed]
            if missing and left_s() > limit_s / 2:
                missing = await self._still_held(missing, left_s())
                await asyncio.sleep(RENEW_PAUSE_S if missing else 0)
            else:
                break
        return renewed

    async def _still_held(self, keys: Sequence[ItemKey], limit_s: float) -> list[ItemKey]:
        found = await self.get([key.id for key in keys], limit_s)
        return [key for key in keys if key.id in found and found[key.id].key == key]

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        left_s = wire.fixed(limit_s)
        refused: dict[ItemKey, ItemRefusal] = {}
        for some in rounds(keys, lambda key: key.id):
            some.sort(key=lambda key: key.id)
            rows = await self._wait("break", item_rows.keys_params(some), max(0.001, left_s()))
            others = map(item_rows.item_and, rows)
            refused.update((some[place - 1], ItemRefusal(HELD_BY_ANOTHER, item)) for item, place in others)
        return refused

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        params = {**item_rows.key_params(key), "state": state, "document": document_json}
        return _answer(await self._wait("save", params, limit_s))

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        answer = _answer(await self._wait("delete", item_rows.key_params(key), limit_s))
        return answer if isinstance(answer, ItemRefusal) else None

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
            "state": state, "limit": limit, "holder": holder_id, "lease_ms": item_rows.lease_ms(lease_s),
            "skip": item_rows.ids_param(skip), **item_rows.stretch_params(stretch),
        }  # fmt: skip
        items = [item_rows.item(row) for row in await self._run("next_for_state", params, limit_s)]
        return sorted(items, key=lambda item: (item.state_timestamp, item.id))

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        return [item_rows.item(row) for row in await self._run("find", {"state": state, "limit": limit}, limit_s)]

    async def kinds(self, limit_s: float) -> list[str]:
        return [kind for (kind,) in await self._run("kinds", {}, limit_s)]

    async def _wait(self, name: str, params: dict[str, Any], limit_s: float) -> Rows:
        """Run a statement that may wait for a row. The server itself ends the wait, so its outcome is known."""
        patience = f"{max(1, int(limit_s * 1000 * PATIENCE_PART))}ms"
        return await self._run(name, {**params, "patience": patience}, limit_s)

    async def _run(self, name: str, params: dict[str, Any], limit_s: float) -> Rows:
        return await self._session.run(name, {**params, "kind": self._kind}, limit_s)


class PostgresItems:
    """The items of one kind in one event loop: one connection for everything, opened when first needed."""

    def __init__(self, info: str, package: str, table: str, kind: str, commits: Commits | None = None) -> None:
        statements = Statements(package, table, pyformat, ITEMS)
        self._session = PlannedSession(info, statements, commits)
        self.schema = PostgresSchema(info, statements)
        self.port = self.leases = self.admin = PostgresItemPort(self._session, kind)

    async def close(self) -> None:
        await self._session.close()


def _answer(rows: Rows) -> ItemAnswer:
    """Return the answer of a verb on one item under one lease: the item that it was done on, or the refusal."""
    if not rows:
        return ItemRefusal(ABSENT)
    current, is_done = item_rows.item_and(rows[0])
    if is_done:
        return current
    return ItemRefusal(LAPSED if current.holder_id is None else HELD_BY_ANOTHER, current)


def _busy() -> Unavailable:
    return Unavailable("Others changed the item again and again; nothing was changed here.", code="busy")
