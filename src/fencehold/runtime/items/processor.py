"""Handles the items in one state: acquires as many as it can start, and runs the handler on each under its lease.

In each turn it waits until there is room and there may be items, acquires a batch, and starts the handlers. Turns never
overlap.
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
    """What a processor needs of the items of one kind."""

    @property
    def kind(self) -> str: ...
    @property
    def holder_id(self) -> str: ...
    @property
    def settings(self) -> ItemSettings: ...

    async def _next_but(self, state: str, limit: int, skip: Sequence[str], stretch: Stretch) -> list[Item]:
        """Acquire and return the next items in this state that came into it within `stretch`, but none of `skip`."""
        ...


class ItemProcessor(HandlerLoop):
    """Runs a handler for every item in one state, in `run`; made by `items.process(...)`.

    It handles at most `concurrency` items at once; only this process holds an item while its handler runs. What a
    handler saved counts, whatever happens to the handler later; what it did not save is not done. If a holder dies, a
    handler may run again for its item, so effects outside the store must be safe to repeat.
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
        self._stretch = 0  # the stretch that the next turn looks at first, if there are several
        self._idle_calls = 0  # calls of the handler that saved nothing, since that was last logged
        self._idle_logged_s: float | None = None

    # --- what a program calls ---

    async def run(self) -> None:
        """Work until `stop()` is called. An outage of the store is waited out.

        Raises ConfigurationError when a retry cannot help, at first contact only: once a turn has succeeded, a missing
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
        """Acquire one batch and start its handlers. The statement itself skips items that rest.

        An item rests for a pause after its handler failed or did not move it. A resting item may be the oldest in the
        state: it must not be leased, and must not hide the others. If more items rest than one statement can skip, each
        turn searches one stretch of time after another, so that retries of old items do not keep younger items waiting.
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
        """Return the ids of the items whose handlers run in this process, even if their leases are over.

        After a lapse or an operator's break such an item may be free in the store while its handler still runs, because
        a thread cannot be stopped. This process must not start a second handler beside it.
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
            self._begin_stopping()  # Ctrl-C is meant for the whole program
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
                self._rests.failed(item.id, item.state_timestamp)  # logged as item_lost already
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
        """Log `item_unchanged`, at most once a minute, for an item whose handler returned and did not change its state.

        The handler may have nothing to do yet, or may never save.
        """
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
        """Stop waiting for the handlers that still run, and end their leases in this process.

        In the store these leases end when the handlers return, or when the leases lapse.
        """
        for item in self._running.values():
            item._lease.end(ABANDONED)
        super()._abandon()


def check_handler(handler: Callable[[Any], object]) -> None:
    """Raise ConfigurationError (`bad_handler`) if the handler cannot be called with one item."""
    if not callable(handler):
        raise ConfigurationError(
            f"{handler!r:.80} cannot handle items.",
            hint="Give `async def handle(item)`; a plain function runs on a thread and saves with item.save_now(...).",
            code="bad_handler",
        )
    check_callable(handler, "item")
