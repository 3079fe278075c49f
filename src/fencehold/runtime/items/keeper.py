"""The lease on one item, as this process sees it, and the keeper that renews it while code is inside `async with`.

The items of one kind share one connection, on the keeper's thread.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
from collections.abc import Callable, Sequence

from fencehold.model.errors import FenceholdError, LeaseLost
from fencehold.model.items.rules import ItemKey
from fencehold.model.items.settings import ItemSettings
from fencehold.ports.backend import items_of
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import ItemFacts, ItemKindFacts
from fencehold.ports.facts import FactSink
from fencehold.ports.items import ItemLeases, ItemStore
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.keeper_thread import ended, lasting
from fencehold.runtime.core.renewals import Heartbeats, Kept
from fencehold.runtime.core.trust import DEADLINE_PASSED, REFUSED, STORE_CLOSED

LEFT, DELETED, BROKEN = "left", "deleted", "broken"
SUPERSEDED, GRANTED_TOO_LATE, ABANDONED = "superseded", "granted_too_late", "abandoned"
DELETE_UNANSWERED = "delete_unanswered"
DONE = frozenset({LEFT, DELETED})  # how a body ends its own lease: no reason to stop it
MEANT = frozenset({*DONE, BROKEN, SUPERSEDED, STORE_CLOSED})  # this process wanted it so: not logged as a loss
GONE = frozenset({DELETED, BROKEN, SUPERSEDED, STORE_CLOSED, REFUSED})  # nothing is left that could be given back


class ItemLease(Kept):
    """The lease on one item, as this process sees it.

    A loss of the lease is logged once; `on_end` is called when the lease ends, for any reason, on any thread.
    """

    def __init__(
        self, kind: str, key: ItemKey, until: dt.datetime, sent_s: float, settings: ItemSettings, *, clock: Clock,
        facts: FactSink,
    ) -> None:  # fmt: skip
        super().__init__(clock, sent_s, settings.trusted_s)
        self.kind, self.key, self.settings = kind, key, settings
        self.expires_at = until
        self.renew_at_s = sent_s + settings.heartbeat_every_s
        self.max_s = math.inf  # how long its body may take
        self.on_end: Callable[[], None] | None = None
        self._sink = facts

    def renewed(self, until: dt.datetime, sent_s: float) -> bool:
        """Record that the store has renewed the lease.

        Returns False, and changes nothing, if the lease is over in this process already.
        """
        in_time = self.extend(sent_s, self.settings.trusted_s)
        if in_time:
            self.expires_at = max(self.expires_at, until)
            self.renew_at_s = self.renewed_s + self.settings.heartbeat_every_s
        return in_time

    def end(self, reason: str, given_up: bool = False) -> bool:
        if not super().end(reason, given_up or reason in MEANT):
            return False
        if not self.is_given_up:
            self.log_lost()
        if self.on_end is not None:
            self.on_end()
        return True

    def check(self) -> None:
        """Raise LeaseLost unless the lease is valid at this instant."""
        if not self.is_valid:
            self.end(DEADLINE_PASSED)
            raise self.error()

    def refused(self, reason: str) -> LeaseLost:
        """End the lease, because the store refused a request under it; return the LeaseLost to raise."""
        self.end(REFUSED)
        return self.error(reason)

    def error(self, reason: str = "") -> LeaseLost:
        key, why = self.key, " ".join([self.ended_because, f"({reason})" if reason else ""]).strip()
        return LeaseLost(
            f"Item {key.id!r} of kind {self.kind!r} is no longer held under token {key.token}: {why}.",
            hint="Whatever was not saved by now is not saved. Acquire it anew and look at its state first.",
            item_id=key.id, token=key.token,
        )  # fmt: skip

    @property
    def facts(self) -> ItemFacts:
        """The facts that can be logged of this lease, with its fields as they are now."""
        return ItemFacts(
            self._sink, kind=self.kind, id=self.key.id, holder_id=self.key.holder_id, token=self.key.token,
            expires_at=self.expires_at.isoformat(),
        )  # fmt: skip

    def log_lost(self) -> None:
        self.facts.item_lost(reason=self.ended_because)


class ItemRenewals(Heartbeats[ItemLease]):
    """Renews the leases on items of one kind.

    A renewal without an answer is repeated until the lease's own local deadline.
    """

    def __init__(
        self, kind: str, settings: ItemSettings, kept: dict[int, ItemLease], leases: ItemLeases, store: StoreContext
    ) -> None:
        super().__init__(kept, store.clock)
        self._settings, self._leases = settings, leases
        self._facts = ItemKindFacts(store.facts.sink, kind=kind)

    def _every_s(self, kept: ItemLease) -> float:
        return self._settings.heartbeat_every_s

    def _look_every_s(self) -> float:
        return self._settings.heartbeat_every_s / 2

    def _max_s(self, kept: ItemLease) -> float:
        return kept.max_s

    def _stall_limit_s(self, kept: ItemLease) -> float:
        return self._settings.stall_limit_s

    def _log_stalled(self, kept: ItemLease, silent_s: float) -> None:
        kept.facts.item_stalled(silent_s=silent_s)

    async def _ask(self, due: Sequence[ItemLease]) -> Sequence[dt.datetime | None]:
        settings = self._settings
        renewed = await self._leases.renew([kept.key for kept in due], settings.lease_s, settings.call_limit_s)
        return [renewed.get(kept.key) for kept in due]

    def _record(self, kept: ItemLease, answer: dt.datetime, sent_s: float) -> bool:
        return kept.renewed(answer, sent_s)

    def _log_heartbeat(self, sent: int, refused: int) -> None:
        self._facts.item_heartbeat(sent=sent, refused=refused)

    def _unanswered(self, due: Sequence[ItemLease], error: FenceholdError) -> None:
        self._facts.item_heartbeat_failed(held=len(due), sql_error=str(error))
        for kept in due:
            self._put_off(kept)


class ItemKeeper:
    def __init__(self, kind: str, settings: ItemSettings, store: StoreContext) -> None:
        self._kind, self._settings, self._store = kind, settings, store
        self._keeper_loop = store.keeper_loop
        self._kept: dict[int, ItemLease] = {}
        self._is_started = False
        self._items: ItemStore | None = None
        self._renewals: ItemRenewals | None = None
        self._task: asyncio.Task[None] | None = None

    def keep(self, lease: ItemLease) -> None:
        """Renew the lease from now on. Called on the holder's thread; never waits.

        If a renewal is overdue, it is sent at once, not at the next turn.
        """
        self._kept[id(lease)] = lease
        if self._store.clock.now_s() > lease.renew_at_s or not self._is_started:
            self._is_started = True
            self._keeper_loop.post(self._begin)

    def drop(self, lease: ItemLease) -> bool:
        return self._kept.pop(id(lease), None) is not None

    async def stop(self) -> None:
        if self._is_started:
            await self._keeper_loop.begin(self._stop())

    # --- on the keeper's loop ---

    def _begin(self) -> None:
        if self._renewals is None:
            self._items = items_of(self._store.backend, self._kind)
            self._renewals = ItemRenewals(self._kind, self._settings, self._kept, self._items.leases, self._store)
            self._task = asyncio.create_task(lasting(self._renewals.run, self._store.facts))
        self._renewals.nudge()

    async def _stop(self) -> None:
        if self._renewals is not None and self._task is not None:
            self._renewals.stop()
            await ended([self._task])
        if self._items is not None:
            await self._items.close()
