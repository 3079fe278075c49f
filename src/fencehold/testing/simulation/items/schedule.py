"""The schedule for items: processes with our own Items, their users and processors, and the troubles they get.

A simulated user works with an item inside an `async with` block or without one: it saves, renews, breaks, deletes,
fails, is slow, and may be cancelled. Besides the troubles of every kind, the store ends leases early.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fencehold.backends.memory.backend import Shelf
from fencehold.model.errors import AlreadyLeased, LeaseLost, NoSuchItem, Unavailable, Uncertain
from fencehold.model.items.rules import RULES, ItemKey
from fencehold.model.items.settings import ItemSettings, item_settings
from fencehold.runtime.core.handler_loop import CLOSE_SLACK_S
from fencehold.runtime.core.keeper_thread import STOP_LIMIT_S
from fencehold.runtime.items.context import BREAK_LIMIT_S, ItemsContext
from fencehold.runtime.items.item import LIMIT_S, Item
from fencehold.runtime.items.items import Items
from fencehold.runtime.items.keeper import DONE, ItemLease
from fencehold.runtime.items.processor import ItemProcessor
from fencehold.testing.simulation.items.referee import Holder, ItemReferee, JudgedItems
from fencehold.testing.simulation.network import STUTTER_S_MAX, Line, new_shelf
from fencehold.testing.simulation.referee import BODY_STOP_S_MAX
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble, ended

KIND = "document"
IDS = ("1", "2", "3")
STATES = ("new", "old")
STEPS_MAX = 4
USERS = 2
IDLE_S_MAX = 1.5
LAST_STATE = "done"

Body = Callable[[Item], Awaitable[None]]


class BadLuck(Exception):
    """Raised by a body, that is, a simulated user's code for an item, that fails on purpose."""


UNANSWERED = (Unavailable, Uncertain)
EXPECTED = (AlreadyLeased, BadLuck, LeaseLost, NoSuchItem, *UNANSWERED)


class ItemNode(Holder):
    def __init__(
        self, name: str, line: Line, shelf: Shelf, settings: ItemSettings, referee: ItemReferee, rng: random.Random
    ) -> None:
        super().__init__(name, line, shelf, settings.call_limit_s, referee, rng)
        self._settings, self._referee = settings, referee
        self._items_context = ItemsContext(self.context)
        self._items = Items(KIND, name, settings, self._items_context)
        self.inside: dict[ItemLease, None] = {}  # the leases whose bodies run
        self.deleting: set[ItemKey] = set()  # by a request without an answer yet
        self._users: list[asyncio.Task[None]] = []
        self._acts: list[asyncio.Task[None]] = []
        self._processors: list[tuple[ItemProcessor, asyncio.Task[None]]] = []
        self._handled: Counter[str] = Counter()  # handlers that run, by item
        self._deeds: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (4, lambda: self._use_one(self._body)), (3, self._use_next), (2, self._hold_one), (1, self._put),
            (1, lambda: self._use_one(self._delete_and_stay)),
        )  # fmt: skip
        self._steps: tuple[tuple[float, Body], ...] = (
            (6, self._save), (2, self._renew), (3, self._dawdle), (1, self._block), (1, self._raise),
            (0.5, self._break),
        )  # fmt: skip
        referee.nodes[name] = self

    def held(self) -> Iterable[ItemLease]:
        return self._items_context._held.values()

    def sending(self, verb: str, args: tuple[Any, ...]) -> None:
        if verb == "renew":
            self._referee.renewing(self, args[0])
        elif verb == "acquire":
            self._referee.acquiring(self, args[0])

    def answered(self, verb: str, args: tuple[Any, ...], answer: Any) -> None:
        # Only the keeper's renewals count: a user who called `renew` may have been cancelled before the answer came.
        if verb == "renew" and asyncio.get_running_loop() is self.keeper:
            self._referee.refused |= {key for key in args[0] if key not in answer}

    # --- life ---

    async def start(self) -> None:
        self._users = [asyncio.create_task(self._act(), name=f"{self.name}-user") for _ in range(USERS)]
        if self._draw() < 0.6:
            self._begin_processor(self._rng.choice(STATES), self._handle)

    async def rest(self) -> None:
        """Wait until no start or restart of this process is under way, then stop it for good."""
        await self._settled.wait()
        await self.stop()

    async def stop(self) -> None:
        tasks = [*self._users, *self._acts]
        for task in tasks:
            task.cancel()
        out_s = BODY_STOP_S_MAX + LIMIT_S + STUTTER_S_MAX  # without a block a user breaks the lease himself
        if tasks:
            await self.within(out_s, "a user", asyncio.wait(tasks))
        self._users = []
        for processor, _ in self._processors:
            processor.stop()
        turn_s = ItemProcessor.pause_s_max + self._settings.trusted_s + STUTTER_S_MAX
        for processor, running in self._processors:
            await self.within(processor.shutdown_timeout_s + turn_s + out_s, "a processor", running)
        self._processors = []

    async def close_parts(self) -> None:
        limit_s = 2 * BREAK_LIMIT_S + CLOSE_SLACK_S + STOP_LIMIT_S
        await self.within(limit_s, "closing the items", self._items_context.close())

    async def finish(self) -> None:
        """Start processors that move every item to its last state.

        They succeed only if each item is free, or soon will be.
        """
        for state in STATES:
            self._begin_processor(state, self._handle_last)

    # --- users and handlers ---

    async def _act(self) -> None:
        """Do random acts as a user, one after the other for ever, each in a task of its own that may be cancelled."""
        while True:
            await asyncio.sleep(self._draw() * IDLE_S_MAX)
            act = asyncio.create_task(self._do_something(), name=f"{self.name}-act")
            self._acts.append(act)
            act.add_done_callback(self._acted)
            await asyncio.wait([act])

    def _acted(self, act: asyncio.Task[None]) -> None:
        self._acts.remove(act)
        if not act.cancelled() and (error := act.exception()) is not None and not isinstance(error, EXPECTED):
            self._fail(f"{self.name}: {error!r}")

    def cancel_act(self) -> None:
        for act in self._acts[:1]:
            self._trace.note(self.name, "cancels what its user does")
            act.cancel()

    def _begin_processor(self, state: str, handler: Callable[[Item], Awaitable[None]]) -> None:
        processing_s = self._settings.lease_s * (0.7 + 2 * self._draw())
        processor = self._items.process(state, handler, concurrency=2, batch=2, max_processing=processing_s)
        running = asyncio.create_task(processor.run(), name=f"{self.name}-processor")
        self._processors.append((processor, running))

    async def _handle(self, item: Item) -> None:
        self._handled[item.id] += 1
        try:
            if self._handled[item.id] > 1:
                self._fail(f"{self.name}: two handlers of one processor have item {item.id}")
            async with self._body_of(item):
                await self._body(item)
        finally:
            self._handled[item.id] -= 1

    async def _handle_last(self, item: Item) -> None:
        await item.save(state=LAST_STATE)

    # --- what a user does ---

    async def _do_something(self) -> None:
        """Do one random act of a user. Raises one of EXPECTED if the act does not succeed."""
        await self._rng.choices([act for _, act in self._deeds], [often for often, _ in self._deeds])[0]()

    # --- one act ---

    async def _use_one(self, body: Body) -> None:
        await self._use(await self._items.acquire(self._rng.choice(IDS)), body)

    async def _use_next(self) -> None:
        for item in await self._items.next_for_state(self._rng.choice(STATES), 2):
            with suppress(LeaseLost, BadLuck):
                await self._use(item, self._body)

    async def _hold_one(self) -> None:
        """Use an item without an `async with` block: nobody renews its lease, and nobody has to give it back."""
        item = await self._items.acquire(self._rng.choice(IDS))
        try:
            await self._body(item)
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
                    async with self._body_of(item):
                        await body(item)
                finally:
                    ended = [asyncio.get_running_loop().time(), self.user.running_s()]
                is_ours = item.is_valid or lease.ended_because in DONE
        finally:
            if ended:
                self._referee.left(self, lease, *ended)
        if not is_ours:
            self._fail(f"{self.name}'s block of item {item.id} ended well, and its lease was over")

    @asynccontextmanager
    async def _body_of(self, item: Item) -> AsyncIterator[None]:
        """Inside this block, record that the body (the user's code) of this item runs.

        Leaving may take a moment, as clean-up.
        """
        self.inside[item._lease] = None
        try:
            yield
        finally:
            try:
                if self._draw() < 0.4:
                    await asyncio.sleep(self._draw() * BODY_STOP_S_MAX)
            finally:
                del self.inside[item._lease]

    async def _body(self, item: Item) -> None:
        for _ in range(1 + int(STEPS_MAX * self._draw())):
            await asyncio.sleep(self._draw() * item._lease.settings.lease_s / 3)
            await self._rng.choices([step for _, step in self._steps], [often for often, _ in self._steps])[0](item)

    # --- one step of a body ---

    async def _save(self, item: Item) -> None:
        if not item.is_valid:
            return
        await self.pause_point()
        try:
            await item.save(state=self._rng.choice(STATES), document={"by": self.name})
        except LeaseLost:
            if item.is_valid:
                self._fail(f"{self.name}'s item {item.id} is valid after a refused save")
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
        self.block(item._lease.settings.lease_s * (0.2 + 2 * self._draw()))
        await asyncio.sleep(0)

    async def _raise(self, item: Item) -> None:
        raise BadLuck(item.id)


class ItemSchedule(Schedule):
    rules = frozenset(rule.id for rule in RULES)
    settles_s = LIMIT_S
    referee: ItemReferee
    nodes: Sequence[ItemNode]

    def __init__(self, seed: int, trace: bool) -> None:
        super().__init__(seed, trace)
        self.settings = item_settings(lease=self.lease_s, stall_limit=self.lease_s * (0.5 + self.draw()))
        self.referee = ItemReferee(self.loop, self.trace, self.settings)
        self.shelf = new_shelf(self.loop)
        self.shelf.items = self.items = JudgedItems(self.shelf.now, self.referee)
        self.rules_fired = self.items.fired
        self.nodes = [ItemNode(name, self.line(), self.shelf, self.settings, self.referee, self.rng) for name in NODES]

    def troubles(self) -> tuple[Trouble, ...]:
        return (
            (0.25, self.pauses), (0.13, self.blocks), (0.20, self.gets_no_answers), (0.06, self.store_restarts),
            (0.10, self.restarts), (0.10, lambda: self.rng.choice(self.nodes).cancel_act()),
            (0.05, self.items.lapse_early),
        )  # fmt: skip

    async def judge_calm(self) -> None:
        """Fail unless every lease is given back or lapses in time, so that one process can acquire all items."""
        await ended([node.user.begin(node.rest()) for node in self.nodes])
        self.nodes[0].user.begin(self.nodes[0].finish())
        # An acquire that was cancelled may still be executed; nobody gives its lease back, so it must lapse.
        limit_s = self.settings.trusted_s + self.lease_s + LIVENESS_SLACK_S
        rows = self.items.rows
        await self.wait_for(lambda: all(r.state == LAST_STATE for r in rows.values()), limit_s, "items are not free")

    def judge_left(self) -> None:
        now = self.shelf.now()
        held = [item_id for item_id, record in self.referee.records.items() if record.until > now]
        self.referee.must(not held, f"items are held: {held}")
