"""Keeps the items of one kind that are inside `async with`: one heartbeat, one connection, on the keeper's thread."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from fencehold.model.items.settings import ItemSettings
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from fencehold.ports.items import ItemStore
from fencehold.runtime.core import heartbeat
from fencehold.runtime.core.keeper_thread import KeeperLoop
from fencehold.runtime.election.keeper_services import lasting
from fencehold.runtime.items.lease import ItemLease

STOP_LIMIT_S = 5.0


class ItemHeartbeat(heartbeat.Heartbeat[ItemLease]):
    """What the store does not answer is asked again until the lease's own deadline."""

    fact, failed_fact = "item_heartbeat", "item_heartbeat_failed"

    def __init__(self, *args: Any, stalled: Callable[[ItemLease, float], None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._stalled = stalled

    def _max_s(self, kept: ItemLease) -> float:
        return kept.max_s

    def _tick_s_max(self) -> float:
        return math.inf

    def _is_attended(self, kept: ItemLease) -> bool:
        """False once the holder's event loop has been silent beyond its limit: the lease is left to expire."""
        if kept.liveness is None:
            return True
        silent_s = kept.liveness.silent_s()
        kept.liveness.ask()
        if silent_s <= kept.settings.stall_limit_s:
            kept.stall_logged = False
            return True
        if not kept.stall_logged:
            kept.stall_logged = True
            self._stalled(kept, silent_s)
        return False


class ItemKeeper:
    def __init__(
        self,
        kind: str,
        settings: ItemSettings,
        keeper_loop: KeeperLoop,
        make_items: Callable[[str], ItemStore],
        *,
        clock: Clock,
        facts: FactSink,
        log_stalled: Callable[[ItemLease, float], None],
    ) -> None:
        self._kind, self._settings, self._keeper_loop, self._make_items = kind, settings, keeper_loop, make_items
        self._clock, self._facts = clock, facts
        self._log_stalled = log_stalled
        self._kept: dict[int, ItemLease] = {}
        self._is_started = False
        self._items: ItemStore | None = None
        self._heartbeat: ItemHeartbeat | None = None
        self._task: asyncio.Task[None] | None = None

    def keep(self, lease: ItemLease) -> None:
        """From the holder's thread; never waits. One that is half spent is renewed now, not at the next tick."""
        self._kept[id(lease)] = lease
        is_spent = self._clock.now_s() - lease.renewed_s > self._settings.heartbeat_every_s
        if is_spent or not self._is_started:
            self._is_started = True
            self._keeper_loop.post(self._begin)

    def drop(self, lease: ItemLease) -> bool:
        return self._kept.pop(id(lease), None) is not None

    async def stop(self) -> None:
        if self._is_started:
            await self._keeper_loop.begin(self._stop())

    # --- on the keeper's loop ---

    def _begin(self) -> None:
        if self._heartbeat is None:
            self._items = self._make_items(self._kind)
            self._heartbeat = ItemHeartbeat(
                self._kept, self._items.port.renew, lambda: self._settings, clock=self._clock, fact=self._fact,
                on_lost=_stopped_by_its_end, stalled=self._log_stalled,
            )  # fmt: skip
            self._task = asyncio.create_task(lasting(self._heartbeat.run, self._facts))
        self._heartbeat.nudge()

    def _fact(self, event: str, **fields: Any) -> None:
        self._facts.fact(event, kind=self._kind, **fields)

    async def _stop(self) -> None:
        if self._heartbeat is not None and self._task is not None:
            self._heartbeat.close()
            _, late = await asyncio.wait([self._task], timeout=STOP_LIMIT_S)
            for task in late:
                task.cancel()
        if self._items is not None:
            await self._items.close()


def _stopped_by_its_end(lease: ItemLease) -> None:
    """A lease that ends stops its own body."""
