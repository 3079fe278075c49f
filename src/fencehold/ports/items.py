"""Items of one kind, each with at most one holder. The rules are in model/items/rules.py; a verb is one statement (or
one transaction) and one limit. A verb for several keys takes and returns a batch: one statement for all of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fencehold.model.items.rules import ItemKey
from fencehold.ports.schema import SchemaPort


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item, as the store returned it; all times are from the store's clock.

    The lease fields are None or 0 without a live lease; only `token` is always that of the last lease (0: never
    leased). `remaining_s`: how long the lease still had when the store answered.
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
    """What a put writes. `holder_id` is the caller: the put is refused while another holder has a live lease."""

    id: str
    state: str
    document_json: str
    holder_id: str


@dataclass(frozen=True, slots=True)
class ItemRefusal:
    """The rules do not allow the request; nothing was changed. `current` is the present item (None: there is none)."""

    reason: str  # model/items/rules.py: ABSENT, LAPSED or HELD_BY_ANOTHER
    current: ItemRow | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of `state_timestamp`, in store time: from `since` on, and before `before`. None: no limit."""

    since: dt.datetime | None = None
    before: dt.datetime | None = None


EVER = Stretch()
ItemAnswer = ItemRow | ItemRefusal


class ItemPort(Protocol):
    """Items and their documents. A verb returns an ItemRow if it was executed, an ItemRefusal if it was refused.

    Without an answer it raises Unavailable (not executed) or Uncertain; so do the verbs of ItemLeases and ItemAdmin.
    """

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        """Create the item, or replace its state and document while no other holder has it; the own live lease stays."""
        ...

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]: ...

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        """Write state and document, only under this live lease: the write itself checks it. None: not changed."""
        ...

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        """Delete the item, only under this live lease: the delete itself checks it. Returns None when it is deleted."""
        ...


class ItemLeases(Protocol):
    """The leases on items: who holds an item, and until when."""

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        """Lease a free item, or one that this holder has already: the new token then replaces the old one."""
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
        """Lease up to `limit` free items in this state to this holder, the longest in the state first.

        Leaves out items that another session is just taking, without waiting for them, and the ids in `skip`.
        With a `stretch`, takes only items that came into this state within it.
        """
        ...

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Return until when each key is held, if it still is. Changes the lease fields only."""
        ...

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        """End these leases and return the refused keys only: there the live lease is another one.

        An absent or lapsed lease is not refused.
        """
        ...


class ItemAdmin(Protocol):
    """Reads for operators."""

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        """Return items of this kind (in this state), the longest in their state first, held or not."""
        ...

    async def kinds(self, limit_s: float) -> list[str]:
        """Return every kind that has an item, sorted. Raises ConfigurationError if the store cannot list them."""
        ...


class ItemStore(Protocol):
    """The items of one kind of one database, on a connection of its own that opens when needed; for one event loop.

    All kinds share their tables.
    """

    @property
    def schema(self) -> SchemaPort: ...

    @property
    def port(self) -> ItemPort: ...

    @property
    def leases(self) -> ItemLeases: ...

    @property
    def admin(self) -> ItemAdmin: ...

    async def close(self) -> None: ...
