"""A process that holds items: our own Items, users who work on them, and processors."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fencehold.backends.memory.backend import Shelf
from fencehold.model.items.settings import ItemSettings
from fencehold.runtime.core.handler_loop import CLOSE_SLACK_S
from fencehold.runtime.first_use import FirstUse
from fencehold.runtime.items.context import BREAK_LIMIT_S, ItemsContext
from fencehold.runtime.items.item import LIMIT_S, Item
from fencehold.runtime.items.items import Items
from fencehold.runtime.items.keeper import STOP_LIMIT_S
from fencehold.runtime.items.lease import ItemLease
from fencehold.runtime.items.processor import ItemProcessor
from fencehold.testing.simulation.backend import BackendOverLine
from fencehold.testing.simulation.items.referee import Holder, ItemReferee
from fencehold.testing.simulation.items.work import EXPECTED, KIND, STATES, ItemWork
from fencehold.testing.simulation.network import STUTTER_S_MAX, Line
from fencehold.testing.simulation.referee import BODY_STOP_S_MAX

USERS = 2
IDLE_S_MAX = 1.5
LAST_STATE = "done"


class ItemNode(Holder):
    def __init__(
        self, name: str, line: Line, shelf: Shelf, settings: ItemSettings, referee: ItemReferee, rng: random.Random
    ) -> None:
        self._shelf = shelf
        super().__init__(name, line, referee, rng)
        self._settings, self._referee = settings, referee
        self.call_limit_s = settings.call_limit_s
        self._items_context = ItemsContext(self.context, FirstUse(self.context))
        self._items = Items(KIND, name, settings, self._items_context)
        self._work = ItemWork(self, self._items, referee, rng)
        self.inside, self.deleting = self._work.inside, self._work.deleting
        self._users: list[asyncio.Task[None]] = []
        self._acts: list[asyncio.Task[None]] = []
        self._processors: list[tuple[ItemProcessor, asyncio.Task[None]]] = []
        self._handled: Counter[str] = Counter()  # handlers that run, by item
        referee.nodes[name] = self

    def backend(self) -> BackendOverLine:
        return BackendOverLine(self._shelf, self.line, self)

    def held(self) -> Iterable[ItemLease]:
        return self._items_context._held.values()

    def sending(self, verb: str, args: tuple[Any, ...]) -> None:
        if verb == "renew":
            self._referee.renewing(self, args[0])
        elif verb == "acquire":
            self._referee.acquiring(self, args[0])

    def answered(self, verb: str, args: tuple[Any, ...], answer: Any) -> None:
        # To the keeper: the caller of `renew` may be gone.
        if verb == "renew" and asyncio.get_running_loop() is self.keeper:
            self._referee.refused |= {key for key in args[0] if key not in answer}

    # --- life ---

    async def start(self) -> None:
        self._users = [asyncio.create_task(self._act(), name=f"{self.name}-user") for _ in range(USERS)]
        if self._draw() < 0.6:
            self._begin_processor(self._rng.choice(STATES), self._handle)

    async def rest(self) -> None:
        """Do nothing any more, once no start is under way."""
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
        """Move every item to its last state, whatever became of it before: it must be free, or soon be."""
        for state in STATES:
            self._begin_processor(state, self._handle_last)

    # --- users and handlers ---

    async def _act(self) -> None:
        """One act after the other; each may be cancelled."""
        while True:
            await asyncio.sleep(self._draw() * IDLE_S_MAX)
            act = asyncio.create_task(self._work.act(), name=f"{self.name}-act")
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
            async with self._work.body_of(item):
                await self._work.body(item)
        finally:
            self._handled[item.id] -= 1

    async def _handle_last(self, item: Item) -> None:
        await item.save(state=LAST_STATE)
