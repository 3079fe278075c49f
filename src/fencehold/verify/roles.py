"""What a contender keeps for longer than its lease lasts: events that it has claimed, items that it holds.

Each of these parts uses the public API. Besides, each runs loops that call the backend's statements directly: they
handle claims slowly, or keep a claim or an item until another process has it, and complete or save it only then. So no
check of the library's own clock stops such a late call: only the database decides whether to accept it.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Generic, TypeVar

import fencehold
from fencehold.model.errors import FenceholdError
from fencehold.model.items.rules import ItemKey
from fencehold.ports.events import Claim, ClaimAsk, EventRow, Events, Filter
from fencehold.ports.items import ItemRow, ItemStore
from fencehold.runtime.store import Store
from fencehold.testing.history import boottime_s
from fencehold.verify.messages import Brief, Windows, tell, tell_stale
from fencehold.verify.plan import ITEM_KIND, ITEMS

T = TypeVar("T")
P = TypeVar("P", Events, ItemStore)

PLAIN, HELD = "plain", "held"
MAX_RETRIES = 1000
FAIL_PART = 0.05
CONCURRENCY = 4
CALM_BATCH = 20
SAVES = 2


class Role(Generic[P]):
    """A part of a contender that keeps events or items for longer than their lease.

    If it is ordered to, it stands still at its next window: a moment between a check and a write, to be frozen there.
    """

    name: ClassVar[str]  # of the order, and of the window that it opens

    def __init__(self, brief: Brief, windows: Windows, part: P) -> None:
        self._brief, self._windows = brief, windows
        self._part: P = part
        self._ordered: dict[str, Any] | None = None

    def hear(self, order: dict[str, Any]) -> None:
        self._ordered = order

    async def close(self) -> None:
        with suppress(FenceholdError):
            await self._part.close()

    @asynccontextmanager
    async def window(self, moment: str, **what: Any) -> AsyncIterator[None]:
        """Stand still before the block if an order asked for that, and then report when the block has ended.

        `moment` and `what` describe the place to the parent process.
        """
        order, self._ordered = self._ordered, None
        if order is not None:
            await self._windows.stand(order["window"], self.name, moment, **what)
        yield
        if order is not None:
            tell("late", window=order["window"], was_accepted=None)


async def repeated(turn: Callable[[], Awaitable[None]], pause_s: Callable[[], float]) -> None:
    while True:
        with suppress(FenceholdError):
            await turn()
        await asyncio.sleep(pause_s())


async def found(look: Callable[[], Awaitable[T | None]], limit_s: float, every_s: float) -> T | None:
    """Call `look` until it returns something, and return that; None if it takes longer than `limit_s`."""
    until_s = boottime_s() + limit_s
    while boottime_s() < until_s:
        with suppress(FenceholdError):
            if (seen := await look()) is not None:
                return seen
        await asyncio.sleep(every_s)
    return None


class DeliberateError(Exception):
    """Raised by some handlers on purpose, so that failures are part of the run."""


class Claiming(Role[Events]):
    name = "event"

    def __init__(self, brief: Brief, windows: Windows, part: Events) -> None:
        super().__init__(brief, windows, part)
        self._is_calm = False

    def calm(self, order: dict[str, Any]) -> None:
        self._is_calm = True

    async def run(self, store: Store) -> None:
        lease_s = self._brief.lease_s
        outbox = store.outbox(
            self._brief.outbox, lease=lease_s, max_retries=MAX_RETRIES, retry_base=0.05, retry_cap=0.5
        )
        worker = outbox.worker(
            {PLAIN: self._handle}, concurrency=CONCURRENCY, worker_id=self._brief.who, poll_every=lease_s / 4
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            tasks.create_task(repeated(self._claim_and_keep, self._pause_s))
            tasks.create_task(repeated(self._claim_and_finish, self._pause_s))

    async def _handle(self, event: Claim) -> None:
        tell("handled", event=event.tracking_id)
        if random.random() < FAIL_PART:
            raise DeliberateError("one in so many")

    # --- by the statements alone

    def _pause_s(self) -> float:
        return self._brief.lease_s * random.uniform(0.02, 0.1)

    async def _claimed(self, limit: int, lease_s: float) -> list[Claim]:
        token = f"{self._brief.who}/late-{secrets.token_hex(6)}"
        ask = ClaimAsk(limit, token, lease_s, event_types=(HELD,))
        return (await self._part.port.turn([], ask, self._brief.lease_s)).claims

    async def _claim_and_finish(self) -> None:
        """Claim events, handle them slowly and complete them, so that an earlier claimant can come back meanwhile.

        At the end of the run it claims more events at once, and does not wait.
        """
        claims = await self._claimed(CALM_BATCH if self._is_calm else 1, self._brief.lease_s)
        if claims and not self._is_calm:
            await asyncio.sleep(0.6 * self._brief.lease_s)
        for claim in claims:
            tell("handled", event=claim.tracking_id)
        await self._part.port.turn([claim.key for claim in claims], None, self._brief.lease_s)

    async def _claim_and_keep(self) -> None:
        if self._is_calm:
            return
        for claim in await self._claimed(1, self._brief.lease_s / 2):
            async with self.window("claimed", event=claim.tracking_id):
                await self._complete_late(claim)

    async def _complete_late(self, claim: Claim) -> None:
        """Wait until another process has the event, and only then complete it with the old claim; report the answer."""
        lease_s = self._brief.lease_s
        row = await found(lambda: self._successor(claim), 3 * lease_s, lease_s / 40)
        if row is None:
            return
        seen = f"{row.lock_token} held it ({row.status.value})"
        done = (await self._part.port.turn([claim.key], None, self._brief.lease_s)).completed
        tell_stale("COMPLETE", f"event {claim.tracking_id}", claim.token, seen, bool(done))

    async def _successor(self, claim: Claim) -> EventRow | None:
        rows = await self._part.admin.find(Filter(tracking_ids=(claim.tracking_id,)), 1, self._brief.lease_s)
        return rows[0] if rows and rows[0].lock_token not in (None, claim.token) else None


class Holding(Role[ItemStore]):
    name = "item"

    async def run(self, store: Store) -> None:
        items = store.items(ITEM_KIND, lease=self._brief.lease_s, holder_id=self._brief.who)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeated(lambda: self._hold(items), self._pause_s))
            tasks.create_task(repeated(self._overstay, self._pause_s))

    def _pause_s(self) -> float:
        return max(self._brief.write_every_s, self._brief.lease_s * random.uniform(0.05, 0.2))

    async def _hold(self, items: fencehold.Items) -> None:
        item = await items.acquire(random.choice(ITEMS[:2]))
        tell("item", item=item.id, token=item.token)
        async with item:
            for number in range(SAVES):
                await item.save(document=document(item.token, number))
                await asyncio.sleep(self._brief.write_every_s / 2)
        tell("item_left", item=item.id, token=item.token)

    async def _overstay(self) -> None:
        """Hold an item beyond its lease, and save it when another holder has it; report the answer.

        It uses another holder id and the backend's statements, so only the database decides whether to accept the save.
        """
        items, lease_s = self._part, self._brief.lease_s
        row = await items.leases.acquire(random.choice(ITEMS[2:]), f"{self._brief.who}-late", lease_s / 2, lease_s)
        if not isinstance(row, ItemRow):
            return
        tell("item", item=row.id, token=row.token)
        await items.port.save(row.key, None, json.dumps(document(row.token, 0)), lease_s)
        async with self.window("held", item=row.id, token=row.token):
            successor = await found(lambda: self._successor(row.key), 3 * lease_s, lease_s / 20)
            if successor is not None:
                seen = f"{successor.holder_id} had been given token {successor.token}"
                answer = await items.port.save(row.key, None, json.dumps(document(row.token, 1)), lease_s)
                tell_stale("SAVE", row.id, f"token {row.token}", seen, isinstance(answer, ItemRow))
            tell("item_left", item=row.id, token=row.token)

    async def _successor(self, key: ItemKey) -> ItemRow | None:
        row = (await self._part.port.get([key.id], self._brief.lease_s)).get(key.id)
        return row if row is not None and row.token > key.token else None


def document(token: int, number: int) -> dict[str, int]:
    """Return the document to save. It holds the saver's token, so that a save under another's lease is seen."""
    return {"token": token, "number": number}
