"""Items on SQLite: sets parameters, runs statements and turns rows into items. The rules are in sql/items/."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Sequence

from fencehold.backends.sql.rounds import rounds
from fencehold.backends.sql.statements import ITEMS, Statements
from fencehold.backends.sqlite.items import rows as item_rows
from fencehold.backends.sqlite.items.rows import Params, Row
from fencehold.backends.sqlite.leases import instant
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session
from fencehold.model.items.rules import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.facts import FactSink
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, NewItem, Stretch

Changed = tuple[bool, list[Row]]


class SqliteItemPort:
    """The verbs on items of one kind. Each is one write transaction, or one read: executed whole, or not at all.

    The rows of a write are turned into items after the transaction has ended, so that it is short.
    """

    def __init__(self, session: Session, statements: Statements, kind: str) -> None:
        self._session = session
        self._statements = statements
        self._kind = kind

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        params = {"id": item.id, "state": item.state, "document": item.document_json, "holder": item.holder_id}
        return _answer(await self._session.write(lambda connection: self._change(connection, "put", params), limit_s))

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        return _items(await self._session.read(lambda connection: self._rows(connection, ids), limit_s))

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        params = {"id": item_id, "holder": holder_id, **item_rows.lease_params(lease_s)}

        def work(connection: sqlite3.Connection) -> Changed:
            is_granted, rows = self._change(connection, "acquire", params)
            if is_granted:
                self._tokens_given(connection, 1)
            return is_granted, rows

        return _answer(await self._session.write(work, limit_s))

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        params = {"keys": item_rows.keys_param(keys), **item_rows.lease_params(lease_s)}

        rows = await self._session.write(lambda connection: self._run(connection, "renew", params), limit_s)
        return {ItemKey(item_id, holder_id, token): instant(until) for item_id, holder_id, token, until in rows}

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        parts = rounds(keys, lambda key: key.id)
        batch = [{"keys": item_rows.keys_param(some)} for some in parts]
        ids = [item_rows.ids_param([key.id for key in some]) for some in parts]

        def work(connection: sqlite3.Connection) -> list[list[Row]]:
            left = []
            for params, some in zip(batch, ids, strict=True):
                self._run(connection, "break", params)
                left.append(self._run(connection, "get", {"ids": some}))
            return left

        refused: dict[ItemKey, ItemRefusal] = {}
        for some, rows in zip(parts, await self._session.write(work, limit_s), strict=True):
            left = _items(rows)
            held = {key: left[key.id] for key in some if key.id in left and left[key.id].holder_id is not None}
            refused.update((key, ItemRefusal(HELD_BY_ANOTHER, row)) for key, row in held.items())
        return refused

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        params = {**item_rows.key_params(key), "state": state, "document": document_json}
        return _answer(await self._session.write(lambda connection: self._change(connection, "save", params), limit_s))

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        params = item_rows.key_params(key)

        def work(connection: sqlite3.Connection) -> list[Row] | None:
            return None if self._run(connection, "delete", params) else self._rows(connection, [key.id])

        left = await self._session.write(work, limit_s)
        return None if left is None else _refusal(_items(left).get(key.id))

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
            "state": state, "limit": limit, "holder": holder_id, "skip": item_rows.ids_param(skip),
            **item_rows.lease_params(lease_s), **item_rows.stretch_params(stretch),
        }  # fmt: skip

        def work(connection: sqlite3.Connection) -> list[Row]:
            rows = self._run(connection, "next_for_state", params)
            self._tokens_given(connection, len(rows))
            return rows

        items = map(item_rows.item, await self._session.write(work, limit_s))
        return sorted(items, key=lambda item: (item.state_timestamp, item.id))

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        params = {"state": state, "limit": limit}

        def work(connection: sqlite3.Connection) -> list[ItemRow]:
            return [item_rows.item(row) for row in self._run(connection, "find", params)]

        return await self._session.read(work, limit_s)

    async def kinds(self, limit_s: float) -> list[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            return [kind for (kind,) in self._run(connection, "kinds", {})]

        return await self._session.read(work, limit_s)

    def _change(self, connection: sqlite3.Connection, name: str, params: Params) -> Changed:
        """Run the statement of a verb on one item. Return whether it changed the item, and the item's row after it.

        The rows are an empty list if there is no such item.
        """
        is_done = bool(self._run(connection, name, params))
        return is_done, self._rows(connection, [params["id"]])

    def _rows(self, connection: sqlite3.Connection, ids: Sequence[str]) -> list[Row]:
        return self._run(connection, "get", {"ids": item_rows.ids_param(ids)})

    def _tokens_given(self, connection: sqlite3.Connection, count: int) -> None:
        self._run(connection, "tokens_given", {"count": count})

    def _run(self, connection: sqlite3.Connection, name: str, params: Params) -> list[Row]:
        return connection.execute(self._statements[name], {**params, "kind": self._kind}).fetchall()


class SqliteItems:
    """The items of one kind in one event loop. They share one connection, which has a thread of its own."""

    def __init__(self, path: str, kind: str, facts: FactSink | None = None) -> None:
        statements = Statements("fencehold.backends.sqlite", ITEMS.default_table, topic=ITEMS)
        self._session = Session(path, "fencehold-sqlite-items", statements, facts)
        self.schema = SqliteSchema(self._session, statements)
        self.port = self.leases = self.admin = SqliteItemPort(self._session, statements, kind)

    async def close(self) -> None:
        await self._session.close()


def _items(rows: Sequence[Row]) -> dict[str, ItemRow]:
    return {one.id: one for one in map(item_rows.item, rows)}


def _answer(changed: Changed) -> ItemAnswer:
    is_done, rows = changed
    current = item_rows.item(rows[0]) if rows else None
    return current if is_done and current is not None else _refusal(current)


def _refusal(current: ItemRow | None) -> ItemRefusal:
    if current is None:
        return ItemRefusal(ABSENT)
    return ItemRefusal(LAPSED if current.holder_id is None else HELD_BY_ANOTHER, current)
