"""Items of one kind, each with at most one holder. The rules are in model/items.py; a verb is one statement (or one
transaction) and one limit. Batches in, batches out: one statement for any number of keys.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fencehold.model.items.items import ItemKey
from fencehold.ports.schema import SchemaPort


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item as the store answered it; all times are the store's own. No live lease: the lease fields are None.

    `token` is that of its last lease (0: never leased), live or not. `remaining_s`: of the lease, when it answered.
    """

    id: str
    state: str
    state_timestamp: dt.datetime
    document_json: str = field(repr=False)
    token: int = 0
    holder_id: str | None = None
    leased_at: dt.datetime | None = None
    lease_s: float = 0.0
    expires_at: dt.datetime | None = None
    remaining_s: float = 0.0

    @property
    def key(self) -> ItemKey:
        return ItemKey(self.id, self.holder_id or "", self.token)


@dataclass(frozen=True, slots=True)
class NewItem:
    """What a put writes. `holder_id` is whoever puts: another's live lease refuses it."""

    id: str
    state: str
    document_json: str
    holder_id: str


@dataclass(frozen=True, slots=True)
class ItemRefusal:
    """No: the rules do not allow it; nothing was changed. `current` is the item as it stands (None: there is none)."""

    reason: str  # model.items: ABSENT, LAPSED or HELD_BY_ANOTHER
    current: ItemRow | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Since when items are in their state, store time: from `since` on and before `before`; None: without an end."""

    since: dt.datetime | None = None
    before: dt.datetime | None = None


EVER = Stretch()
ItemAnswer = ItemRow | ItemRefusal


class ItemPort(Protocol):
    """Yes is an ItemRow, no an ItemRefusal; no answer at all is Unavailable (not executed) or Uncertain, raised."""

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        """Create it, or replace state and document while nobody else holds it; an own live lease stays."""
        ...

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]: ...

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        """Granted on a free item, and on one this holder has already: then under a new token, the old one is over."""
        ...

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Until when those are held that still are; touches lease fields only."""
        ...

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        """The refused only (another's live lease); an absent, lapsed or own lease is gone afterwards."""
        ...

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        """Only under this live lease, checked in the write itself; what is None stays as it is."""
        ...

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        """Only under this live lease, checked in the write itself; None: it is gone."""
        ...

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
        """Up to `limit` free items in this state, the longest in it first, each now leased to this holder.

        What another session is just taking is left out, never waited for; the ids in `skip` are left out, untouched.
        With a `stretch`, only items whose time in this state began within it.
        """
        ...

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        """For people: items of this kind (in this state), the longest in their state first, held or not."""
        ...

    async def kinds(self, limit_s: float) -> list[str]:
        """For people: every kind there is an item of, in order; ConfigurationError where the store cannot tell."""
        ...


class ItemStore(SchemaPort, Protocol):
    """The items of one kind of one database, on a connection of its own that opens when needed; for one event loop.

    All kinds share their tables.
    """

    @property
    def port(self) -> ItemPort: ...

    async def close(self) -> None: ...
