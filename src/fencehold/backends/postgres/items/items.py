"""Items on PostgreSQL: the verbs that are not the same as in backends/sql/items.py. The rules are in sql/items/."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

from fencehold.backends.postgres.arrays import array, text_array
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.postgres.planned_session import PlannedSession
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.sql.items import ItemDialect, Params, Rows, SqlItemPort, busy, lease_ms
from fencehold.backends.sql.rounds import rounds
from fencehold.backends.sql.statements import ITEMS, Statements, pyformat
from fencehold.model.items.rules import HELD_BY_ANOTHER, ItemKey
from fencehold.ports.items import ItemAnswer, ItemRefusal, NewItem, Stretch
from fencehold.ports.time_limit import fixed

RENEW_PAUSE_S = 0.02
# The part of the limit for one wait for a lock. For a row that several wait for there are two waits (first for the
# place in the queue, then for the row), and the server's refusal must arrive before the limit.
PATIENCE_PART = 0.4


def instant(at: dt.datetime) -> dt.datetime:
    return at.astimezone(dt.UTC)


def keys(keys: Sequence[ItemKey]) -> Params:
    return {
        "ids": text_array([key.id for key in keys]),
        "holders": text_array([key.holder_id for key in keys]),
        "tokens": array([key.token for key in keys]),
    }


def stretch(stretch: Stretch) -> Params:
    since, before = stretch.since, stretch.before
    return {
        "since": since.isoformat() if since is not None else "-infinity",
        "before": before.isoformat() if before is not None else "infinity",
    }


class PostgresItemPort(SqlItemPort):
    dialect = ItemDialect(instant, text_array, keys, stretch)

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        """Put the item. Return the stored item, or a refusal if another holder has a live lease on it.

        After a refused put the item is read again; if it is free by then, the put is repeated. Raises Unavailable
        (busy) if there is no result within the limit.
        """
        params = {"id": item.id, "state": item.state, "document": item.document_json, "holder": item.holder_id}
        left_s = fixed(limit_s)
        while left_s() > 0:
            if rows := await self._wait("put", params, left_s()):
                return self.dialect.item(rows[0])
            current = (await self.get([item.id], max(0.001, left_s()))).get(item.id)
            if current is not None and current.holder_id not in (None, item.holder_id):
                return ItemRefusal(HELD_BY_ANOTHER, current)
        raise busy()

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Renew the leases; return the new end of each lease that was renewed. A key that was not renewed is left out.

        The statement skips a row that another session has locked. If such a lease is still the holder's, the renewal is
        repeated, for at most half of the limit.
        """
        left_s = fixed(limit_s)
        renewed: dict[ItemKey, dt.datetime] = {}
        missing = list(keys)
        while missing and left_s() > 0:
            params = {**self.dialect.keys(missing), "lease_ms": lease_ms(lease_s)}
            for item_id, holder_id, token, until in await self._run("renew", params, left_s()):
                renewed[ItemKey(item_id, holder_id, token)] = instant(until)
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
        left_s = fixed(limit_s)
        refused: dict[ItemKey, ItemRefusal] = {}
        for some in rounds(keys, lambda key: key.id):
            some.sort(key=lambda key: key.id)
            for row in await self._wait("break", self.dialect.keys(some), max(0.001, left_s())):
                item, [place] = self.dialect.item_and(row)
                refused[some[place - 1]] = ItemRefusal(HELD_BY_ANOTHER, item)
        return refused

    async def _wait(self, name: str, params: Params, limit_s: float) -> Rows:
        """Return the rows of a statement that may wait for a locked row, for at most 40 % of the limit.

        The server itself ends the wait, so it is known that the statement was not executed.
        """
        patience = f"{max(1, int(limit_s * 1000 * PATIENCE_PART))}ms"
        return await self._run(name, {**params, "patience": patience}, limit_s)


class PostgresItems:
    """The items of one kind in one event loop. They share one connection, which is opened when it is first needed."""

    def __init__(self, info: str, package: str, table: str, kind: str, commits: Commits | None = None) -> None:
        statements = Statements(package, table, pyformat, ITEMS)
        self._session = PlannedSession(info, statements, commits)
        self.schema = PostgresSchema(info, statements)
        self.port = self.leases = self.admin = PostgresItemPort(self._session, kind)

    async def close(self) -> None:
        await self._session.close()
