"""Items of one kind on a database server: parameters, statements and what their rows mean, for all SQL dialects.

The rules are in each dialect's .sql files. SQLite, which is no server, has its own: there a verb is several statements
in one transaction.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from fencehold.model.errors import Unavailable
from fencehold.model.items.rules import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.items import EVER, ItemAnswer, ItemRefusal, ItemRow, Stretch
from fencehold.ports.time_limit import fixed

Params: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[tuple[Any, ...]]


class Runs(Protocol):
    async def run(self, name: str, params: Mapping[str, Any], limit_s: float) -> Rows: ...


@dataclass(frozen=True)
class ItemDialect:
    """How one database takes the parameters of the item statements, and how it returns values."""

    instant: Callable[[Any], dt.datetime]  # from the value of a column with times
    ids: Callable[[Iterable[str]], Any]  # a list of ids as one parameter
    keys: Callable[[Sequence[ItemKey]], Params]  # a list of keys as parameters
    stretch: Callable[[Stretch], Params]
    stored: Callable[[str], str] = str  # a name as its column stores it
    given: Callable[[str], str] = str  # the opposite of `stored`
    no_text: str | None = None  # stands for a text that is not given

    def name(self, name: str | None) -> str | None:
        return self.no_text if name is None else self.stored(name)

    def key(self, key: ItemKey) -> Params:
        return {"id": self.stored(key.id), "holder": self.stored(key.holder_id), "token": key.token}

    def key_of(self, item_id: str, holder_id: str, token: int) -> ItemKey:
        """Return the key made of the three columns that identify a lease on an item."""
        return ItemKey(self.given(item_id), self.given(holder_id), token)

    def item(self, row: Sequence[Any]) -> ItemRow:
        """Return the item of a row. If its lease has lapsed, the item is returned without a holder."""
        item_id, state, state_timestamp, document, token, holder_id, leased_at, lease_ms, expires_at, now = row
        if holder_id is None or expires_at <= now:
            return ItemRow(self.given(item_id), self.given(state), self.instant(state_timestamp), document, token)
        return ItemRow(
            self.given(item_id), self.given(state), self.instant(state_timestamp), document, token,
            self.given(holder_id), self.instant(leased_at), lease_ms / 1000, self.instant(expires_at),
            (expires_at - now).total_seconds(),
        )  # fmt: skip

    def item_and(self, row: tuple[Any, ...]) -> tuple[ItemRow, list[Any]]:
        """Return the item of a row, and the values of the columns that follow those of the item."""
        return self.item(row[:ITEM_COLUMNS]), list(row[ITEM_COLUMNS:])


ITEM_COLUMNS = 10


class SqlItemPort:
    """The verbs on items of one kind.

    A verb on one item waits, within its limit, for a row that another session has locked. Raises Unavailable if the row
    is still locked at the end of the limit.
    """

    dialect: ClassVar[ItemDialect]

    def __init__(self, session: Runs, kind: str) -> None:
        self._session = session
        self._kind = self.dialect.stored(kind)

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]:
        rows = await self._run("get", {"ids": self.dialect.ids(ids)}, limit_s)
        return {item.id: item for item in map(self.dialect.item, rows)}

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        stored = self.dialect.stored
        params = {"id": stored(item_id), "holder": stored(holder_id), "lease_ms": lease_ms(lease_s)}
        left_s = fixed(limit_s)
        while left_s() > 0:
            rows = await self._wait("acquire", params, left_s())
            if not rows:
                return ItemRefusal(ABSENT)
            if answer := self._granted(rows, holder_id):
                return answer
        raise busy()

    def _granted(self, rows: Rows, holder_id: str) -> ItemAnswer | None:
        """Return the item if the lease was granted, or the refusal if another holder has the item.

        None if the lease was not granted, but no other holder has the item by now: the caller then asks again.
        """
        item, [is_done] = self.dialect.item_and(rows[0])
        if is_done:
            return item
        return ItemRefusal(HELD_BY_ANOTHER, item) if item.holder_id not in (None, holder_id) else None

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        document = self.dialect.no_text if document_json is None else document_json
        params = {**self.dialect.key(key), "state": self.dialect.name(state), "document": document}
        return self._answer(await self._wait("save", params, limit_s))

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        answer = self._answer(await self._wait("delete", self.dialect.key(key), limit_s))
        return answer if isinstance(answer, ItemRefusal) else None

    def _answer(self, rows: Rows) -> ItemAnswer:
        """Return the item if the statement changed it, else the refusal.

        The refusal says that the item is absent, that its lease has lapsed, or that another holder has it.
        """
        if not rows:
            return ItemRefusal(ABSENT)
        item, [is_done] = self.dialect.item_and(rows[0])
        if is_done:
            return item
        return ItemRefusal(LAPSED if item.holder_id is None else HELD_BY_ANOTHER, item)

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
            "state": self.dialect.stored(state), "limit": limit, "holder": self.dialect.stored(holder_id),
            "lease_ms": lease_ms(lease_s), "skip": self.dialect.ids(skip), **self.dialect.stretch(stretch),
        }  # fmt: skip
        items = map(self.dialect.item, await self._run("next_for_state", params, limit_s))
        return sorted(items, key=lambda item: (item.state_timestamp, item.id))

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        params = {"state": self.dialect.name(state), "limit": limit}
        return [self.dialect.item(row) for row in await self._run("find", params, limit_s)]

    async def kinds(self, limit_s: float) -> list[str]:
        """Return the kinds of which there are items, sorted.

        They are sorted here, because some servers sort by code units, which differs for rare characters.
        """
        return sorted(self.dialect.given(kind) for (kind,) in await self._run("kinds", {}, limit_s))

    async def _wait(self, name: str, params: Params, limit_s: float) -> Rows:
        """Return the rows of a statement that may wait for a locked row; a subclass lets the server end that wait.

        It is then known that the statement was not executed.
        """
        return await self._run(name, params, limit_s)

    async def _run(self, name: str, params: Params, limit_s: float) -> Rows:
        return await self._session.run(name, {**params, "kind": self._kind}, limit_s)


def lease_ms(lease_s: float) -> int:
    return round(lease_s * 1000)


def busy() -> Unavailable:
    return Unavailable("Others changed the item again and again; nothing was changed here.", code="busy")
