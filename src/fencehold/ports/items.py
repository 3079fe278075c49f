"""The verbs of items of one kind; an item has at most one holder. The rules are in model/items/rules.py.

A verb is one statement (or one transaction) and has one time limit. A verb for several keys takes and returns all of
them at once, in one statement.
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

    Without a live lease the lease fields are None or 0, except `token`, which is that of the last lease (0: the item
    was never leased). `remaining_s`: how long the lease still had when the store answered.
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
    """What a put writes.

    `holder_id` names the caller: the put is refused while another holder has a live lease on the item.
    """

    id: str
    state: str
    document_json: str
    holder_id: str


@dataclass(frozen=True, slots=True)
class ItemRefusal:
    """The answer to a request that the rules do not allow; nothing was changed.

    `current` is the item (None: no item).
    """

    reason: str  # model/items/rules.py: ABSENT, LAPSED or HELD_BY_ANOTHER
    current: ItemRow | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of times in the store's clock: from `since` on, and before `before`. None: no limit on that side.

    It selects items by `state_timestamp`, the time at which they came into their state.
    """

    since: dt.datetime | None = None
    before: dt.datetime | None = None


EVER = Stretch()
ItemAnswer = ItemRow | ItemRefusal


class ItemPort(Protocol):
    """The verbs for items and their documents. A verb returns an ItemRow if it was executed, an ItemRefusal if refused.

    If the store does not answer, it raises Unavailable (not executed) or Uncertain (perhaps executed). The verbs of
    ItemLeases and ItemAdmin raise the same two errors.
    """

    async def put(self, item: NewItem, limit_s: float) -> ItemAnswer:
        """Create the item, or replace its state and document, unless another holder has a live lease on it.

        If the caller itself has a live lease on the item, that lease stays.
        """
        ...

    async def get(self, ids: Sequence[str], limit_s: float) -> dict[str, ItemRow]: ...

    async def save(self, key: ItemKey, state: str | None, document_json: str | None, limit_s: float) -> ItemAnswer:
        """Write state and document, only if this lease is live: the write itself checks that.

        An argument None is not changed.
        """
        ...

    async def delete(self, key: ItemKey, limit_s: float) -> ItemRefusal | None:
        """Delete the item, only if this lease is live: the delete itself checks that. Return None, or the refusal."""
        ...


class ItemLeases(Protocol):
    """The leases on items: who holds an item, and until when."""

    async def acquire(self, item_id: str, holder_id: str, lease_s: float, limit_s: float) -> ItemAnswer:
        """Lease the item if it is free, or if this holder has it already.

        In that case a new token replaces the old one.
        """
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
        """Lease up to `limit` free items in this state to this holder, the longest in the state first, and return them.

        Leaves out items that another session is just leasing, without waiting for them, and the ids in `skip`. With a
        `stretch`, leases only items that came into this state within that range of time.
        """
        ...

    async def renew(self, keys: Sequence[ItemKey], lease_s: float, limit_s: float) -> dict[ItemKey, dt.datetime]:
        """Renew the leases and return until when each key is held. Leaves out keys whose lease is not live any more.

        Nothing but the lease is changed.
        """
        ...

    async def break_leases(self, keys: Sequence[ItemKey], limit_s: float) -> dict[ItemKey, ItemRefusal]:
        """End these leases and return the refusals: for each key whose item is under another live lease.

        A lease that has lapsed, or whose item is gone, is not refused. An empty dict: nothing was refused.
        """
        ...


class ItemAdmin(Protocol):
    """The verbs of an operator: they read items and lease nothing."""

    async def find(self, state: str | None, limit: int, limit_s: float) -> list[ItemRow]:
        """Return up to `limit` items of this kind, leased or not, the longest in their state first.

        `state` None: any state.
        """
        ...

    async def kinds(self, limit_s: float) -> list[str]:
        """Return every kind that has an item, sorted. Raises ConfigurationError if the store cannot list them."""
        ...


class ItemStore(Protocol):
    """The items of one kind in one database, for one event loop.

    They use one connection of their own, opened when first needed. The items of all kinds are in the same tables.
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
