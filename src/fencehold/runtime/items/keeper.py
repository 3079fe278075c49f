"""Keeps the items of one kind that are inside `async with`: one connection, on the keeper's thread."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

from fencehold.model.errors import FenceholdError
from fencehold.model.items.settings import ItemSettings
from fencehold.ports.backend import items_of
from fencehold.ports.fact_table import ItemKindFacts
from fencehold.ports.items import ItemLeases, ItemStore
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.renewals import Heartbeats
from fencehold.runtime.election.keeper_services import lasting
from fencehold.runtime.items.lease import ItemLease

STOP_LIMIT_S = 5.0


class ItemRenewals(Heartbeats[ItemLease]):
    """What the store does not answer is asked again until the lease's own deadline."""

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
        """From the holder's thread; never waits. One that is half spent is renewed now, not at the next turn."""
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
            _, late = await asyncio.wait([self._task], timeout=STOP_LIMIT_S)
            for task in late:
                task.cancel()
        if self._items is not None:
            await self._items.close()
