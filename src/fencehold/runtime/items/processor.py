"""Moves items on from one state: takes what it can start at once, runs the handler on each under its lease.

Shape of a turn: wait until there is room and something may be there, take a batch, start it. Turns never overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fencehold.model.errors import ConfigurationError, FenceholdError, LeaseLost
from fencehold.model.items.settings import ItemSettings, ProcessorSettings
from fencehold.ports.fact_table import ProcessorFacts
from fencehold.ports.items import Stretch
from fencehold.runtime.core.handler_loop import HandlerLoop
from fencehold.runtime.core.repeated_failures import REMIND_EVERY_S
from fencehold.runtime.handlers.error_text import described, in_full
from fencehold.runtime.handlers.handlers import Handlers, check_callable
from fencehold.runtime.handlers.types import ItemHandler
from fencehold.runtime.items.context import ItemsContext
from fencehold.runtime.items.item import Item
from fencehold.runtime.items.keeper import ABANDONED, BROKEN, DELETED
from fencehold.runtime.items.rests import Rests

UNCHANGED = "the handler returned without saving; it will be called again at the next poll"


class ItemSource(Protocol):
    """The items of one kind, as their processor takes them."""

    @property
    def kind(self) -> str: ...
    @property
    def holder_id(self) -> str: ...
    @property
    def settings(self) -> ItemSettings: ...

    async def _next_but(self, state: str, limit: int, skip: Sequence[str], stretch: Stretch) -> list[Item]:
        """Lease the next items in this state, but none of `skip`."""
        ...


class ItemProcessor(HandlerLoop):
    """At most `concurrency` items at once, each held alone by this process while its handler runs.

    What a handler saved counts, whatever becomes of it later; what it did not save is not done. A handler may be run
    again for an item whose holder died, so its effects elsewhere should bear repeating.
    """

    kind = "processor"
    pause_s_max = 5.0

    def __init__(
        self, items: ItemSource, state: str, handler: ItemHandler, settings: ProcessorSettings, context: ItemsContext
    ) -> None:
        check_handler(handler)
        self._facts = ProcessorFacts(context.facts.sink, kind=items.kind, state=state)
        super().__init__(context.clock, self._facts, asyncio.Event())
        self.state, self.settings = state, settings
        self._items, self._context = items, context
        self._handlers = Handlers(handler, settings.concurrency, argument="item")
        self._rests = Rests(settings.poll_every_s, context.clock)
        self._running: dict[asyncio.Task[None], Item] = {}
        self._stretch = 0  # where the next turn looks first, while there are several
        self._idle_calls = 0  # that saved nothing, since it was last told
        self._idle_logged_s: float | None = None

    # --- what a program calls ---

    async def run(self) -> None:
        """Until `stop()`; a store that is away is waited for.

        Raises ConfigurationError for what no retry can mend, at first contact only: once a turn has worked, a missing
        table or right is logged and retried too.
        """
        self._begin_run()
        self._context.processors.add(self)
        self._facts.processor_started(concurrency=self.settings.concurrency)
        try:
            await self._pump()
            while self._running and not self._abandoned:
                self._wake.clear()
                await self._wake.wait()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._facts.processor_died(error=described(error))
            self._stopping = True
            self._cancel_handlers()
            if self._running:
                await asyncio.wait(list(self._running), timeout=self._items.settings.call_limit_s)
            raise
        finally:
            self._handlers.close()
            self._facts.processor_stopped()
            self._context.processors.discard(self)
            self.stopped.set()

    @property
    def shutdown_timeout_s(self) -> float:
        return self.settings.shutdown_timeout_s

    @property
    def in_hand(self) -> int:
        return len(self._running)

    # --- the pump ---

    async def _pump(self) -> None:
        next_poll_s = 0.0
        while not self._stopping:
            polls = self._clock.now_s() >= next_poll_s
            room = min(self.settings.concurrency - len(self._running), self.settings.batch)
            if not room or not (self._more or polls):
                self._wake.clear()
                pause_s = max(0.0, next_poll_s - self._clock.now_s()) if room else None
                await self._clock.wait(self._wake, pause_s)
                continue
            next_poll_s = self._clock.now_s() + self.settings.poll_every_s
            await self._attempt(self._turn(room))

    async def _turn(self, room: int) -> None:
        """What rests is not even looked at: it may be the oldest, and must neither hide the others nor be leased.

        While more rest than one statement can be told of, the stretches take turns, so that the retries of old items do
        not keep the younger ones waiting.
        """
        stretches = self._rests.stretches()
        taken: list[Item] = []
        for _ in stretches:
            stretch = stretches[self._stretch % len(stretches)]
            self._stretch += 1
            skip = [*self._rests.ids(stretch), *self._in_hand()]
            taken = await self._items._next_but(self.state, room, skip, stretch)
            if taken or self._stopping:
                break
        if self._stopping:
            await self._give_back(taken)
            return
        for item in taken:
            self._begin(item)
        self._more = len(taken) == room if len(stretches) == 1 else bool(taken)

    def _in_hand(self) -> set[str]:
        """May be free in the store, after an operator's break or a lapse, while its handler runs: a thread cannot be
        stopped. Whoever else takes it meanwhile, a second handler beside the first would not be ours to explain.
        """
        inside = self._context.ids_inside(self._items.kind, self._items.holder_id)
        return inside | {item.id for item in self._running.values()}

    async def _give_back(self, items: list[Item]) -> None:
        leases = [item._lease for item in items]
        for lease in leases:
            lease.end(BROKEN)
        await self._context.break_quietly(leases)

    # --- one item ---

    def _begin(self, item: Item) -> None:
        item._lease.max_s = self.settings.max_processing_s
        task = asyncio.get_running_loop().create_task(self._handle(item))
        self._running[task] = item
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        item = self._running.pop(task)
        if item._lease.end(BROKEN):  # cancelled before it could even begin
            self._context.start_breaking([item._lease])
        if not task.cancelled() and task.exception() is not None:
            self._begin_stopping()  # Ctrl-C means the program
        self._wake.set()

    async def _handle(self, item: Item) -> None:
        run = self._handlers.only
        assert run is not None, "one handler for all"
        try:
            async with item:
                await run(item)
        except KeyboardInterrupt:
            self._begin_stopping()  # before asyncio cancels the others: those are called off and have not failed
            raise
        except LeaseLost as error:
            if error.item_id == item.id and error.token == item.token:
                self._rests.failed(item.id, item.state_timestamp)  # told as item_lost already
            else:
                self._failed(item, error)
        except BaseException as error:  # noqa: BLE001 - whatever it raises, sys.exit() too, is a failed try
            if self._stopping and isinstance(error, asyncio.CancelledError):
                self._facts.item_called_off(id=item.id, token=item.token)
            else:
                self._failed(item, error)
        else:
            self._done(item)

    def _done(self, item: Item) -> None:
        has_moved = item.state != self.state or item.ended_because == DELETED
        self._rests.done(item.id, item.state_timestamp, has_moved)
        self._facts.item_processed(id=item.id, token=item.token, now=item.state, moved=has_moved)
        if not has_moved and not item.has_saved:
            self._unchanged(item)

    def _unchanged(self, item: Item) -> None:
        """Told once a minute at most: a handler may well have nothing to do yet, or forget to save for ever."""
        self._idle_calls += 1
        now_s = self._clock.now_s()
        if self._idle_logged_s is not None and now_s - self._idle_logged_s < REMIND_EVERY_S:
            return
        self._facts.item_unchanged(id=item.id, token=item.token, calls=self._idle_calls, detail=UNCHANGED)
        self._idle_logged_s, self._idle_calls = now_s, 0

    def _failed(self, item: Item, error: BaseException) -> None:
        rest_s = self._rests.failed(item.id, item.state_timestamp)
        self._facts.item_failed(
            id=item.id, token=item.token, error=described(error), rest_s=round(rest_s, 3),
            traceback=in_full(error) or None,
        )  # fmt: skip

    # --- the end ---

    def _log_stopping(self) -> None:
        self._facts.processor_stopping(in_hand=len(self._running))

    def _log_store_failed(self, error: FenceholdError) -> None:
        self._facts.processor_store_failed(sql_error=str(error))

    def _cancel_handlers(self) -> None:
        for task in list(self._running):
            task.cancel("the processor stops")

    def _abandon(self) -> None:
        """Leave the rest behind: their leases end here, and in the store when they return, or they lapse."""
        for item in self._running.values():
            item._lease.end(ABANDONED)
        super()._abandon()


def check_handler(handler: Callable[[Any], object]) -> None:
    """Raises ConfigurationError (`bad_handler`) for what cannot be called with one item."""
    if not callable(handler):
        raise ConfigurationError(
            f"{handler!r:.80} cannot handle items.",
            hint="Give `async def handle(item)`; a plain function runs on a thread and saves with item.save_now(...).",
            code="bad_handler",
        )
    check_callable(handler, "item")
