"""What a user does with items: works in a block or without one, saves, renews, breaks, deletes, fails, dawdles."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from fencehold.model.errors import AlreadyLeased, LeaseLost, NoSuchItem, Unavailable, Uncertain
from fencehold.model.items.items import ItemKey
from fencehold.runtime.items.item import Item
from fencehold.runtime.items.items import Items
from fencehold.runtime.items.lease import DONE, ItemLease
from fencehold.testing.simulation.items.referee import ItemReferee
from fencehold.testing.simulation.process import Process
from fencehold.testing.simulation.referee import BODY_STOP_S_MAX

KIND = "document"
IDS = ("1", "2", "3")
STATES = ("new", "old")
STEPS_MAX = 4


Body = Callable[[Item], Awaitable[None]]


class BadLuck(Exception):
    """A body fails."""


UNANSWERED = (Unavailable, Uncertain)
EXPECTED = (AlreadyLeased, BadLuck, LeaseLost, NoSuchItem, *UNANSWERED)


class ItemWork:
    """Of one process. `inside` are the leases whose bodies run."""

    def __init__(self, process: Process, items: Items, referee: ItemReferee, rng: random.Random) -> None:
        self.inside: dict[ItemLease, None] = {}
        self.deleting: set[ItemKey] = set()  # by a request without an answer yet
        self._process, self._items, self._referee = process, items, referee
        self._rng, self._draw = rng, rng.random
        self._acts: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (4, lambda: self._use_one(self.body)), (3, self._use_next), (2, self._hold_one), (1, self._put),
            (1, lambda: self._use_one(self._delete_and_stay)),
        )  # fmt: skip
        self._steps: tuple[tuple[float, Body], ...] = (
            (6, self._save), (2, self._renew), (3, self._dawdle), (1, self._block), (1, self._fail), (0.5, self._break),
        )  # fmt: skip

    async def act(self) -> None:
        """Do something; raises one of EXPECTED if it does not succeed."""
        await self._rng.choices([act for _, act in self._acts], [often for often, _ in self._acts])[0]()

    # --- one act ---

    async def _use_one(self, body: Body) -> None:
        await self._use(await self._items.acquire(self._rng.choice(IDS)), body)

    async def _use_next(self) -> None:
        for item in await self._items.next_for_state(self._rng.choice(STATES), 2):
            with suppress(LeaseLost, BadLuck):
                await self._use(item, self.body)

    async def _hold_one(self) -> None:
        """Without a block: nobody renews it, and nobody has to give it back."""
        item = await self._items.acquire(self._rng.choice(IDS))
        try:
            await self.body(item)
        finally:
            if self._draw() < 0.6:
                await self._break(item)

    async def _put(self) -> None:
        await self._items.put(self._rng.choice(IDS), state=self._rng.choice(STATES), document={})

    async def _delete_and_stay(self, item: Item) -> None:
        self.deleting.add(item._lease.key)
        try:
            with suppress(*UNANSWERED):
                await self._items.delete(item)
        finally:
            self.deleting.discard(item._lease.key)
        await asyncio.sleep(self._draw())

    async def _use(self, item: Item, body: Body) -> None:
        lease, is_ours, ended = item._lease, True, list[float]()
        try:
            async with item:
                try:
                    async with self.body_of(item):
                        await body(item)
                finally:
                    ended = [asyncio.get_running_loop().time(), self._process.user.running_s()]
                is_ours = item.is_valid or lease.ended_because in DONE
        finally:
            if ended:
                self._referee.left(self._process, lease, *ended)
        if not is_ours:
            self._referee.fail(f"{self._process.name}'s block of item {item.id} ended well, and its lease was over")

    @asynccontextmanager
    async def body_of(self, item: Item) -> AsyncIterator[None]:
        """A body that may take a moment to leave."""
        self.inside[item._lease] = None
        try:
            yield
        finally:
            try:
                if self._draw() < 0.4:
                    await asyncio.sleep(self._draw() * BODY_STOP_S_MAX)
            finally:
                del self.inside[item._lease]

    async def body(self, item: Item) -> None:
        for _ in range(1 + int(STEPS_MAX * self._draw())):
            await asyncio.sleep(self._draw() * item._lease.settings.lease_s / 3)
            await self._rng.choices([step for _, step in self._steps], [often for often, _ in self._steps])[0](item)

    # --- one step of a body ---

    async def _save(self, item: Item) -> None:
        if not item.is_valid:
            return
        await self._process.pause_point()
        try:
            await item.save(state=self._rng.choice(STATES), document={"by": self._process.name})
        except LeaseLost:
            if item.is_valid:
                self._referee.fail(f"{self._process.name}'s item {item.id} is valid after a refused save")
            raise
        except UNANSWERED:
            return

    async def _renew(self, item: Item) -> None:
        with suppress(*UNANSWERED):
            await self._items.renew(item)

    async def _break(self, item: Item) -> None:
        with suppress(*UNANSWERED, AlreadyLeased):
            await self._items.break_lease(item)

    async def _dawdle(self, item: Item) -> None:
        await asyncio.sleep(self._draw() * 2 * item._lease.settings.lease_s)

    async def _block(self, item: Item) -> None:
        self._process.block(item._lease.settings.lease_s * (0.2 + 2 * self._draw()))
        await asyncio.sleep(0)

    async def _fail(self, item: Item) -> None:
        raise BadLuck(item.id)
