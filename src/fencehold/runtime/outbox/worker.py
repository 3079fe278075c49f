"""Handles events: claims as many as it can start, runs their handlers, and records the results.

In each turn the worker waits until there is a result to record, or room for events that may be due; records and claims
in one round trip; and starts the handlers. Turns never overlap, and no handler waits for a turn.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from fencehold.model.errors import ConfigurationError, FenceholdError, WorkerStuck
from fencehold.model.outbox.settings import OutboxSettings, WorkerSettings
from fencehold.ports.events import Claim, ClaimAsk, Turn
from fencehold.runtime.handlers.handlers import Handlers
from fencehold.runtime.outbox.context import (
    ClaimedEvent,
    OutboxAccess,
    RunningWorker,
    WorkerContext,
    event_facts,
)
from fencehold.runtime.outbox.handler_runs import HandlerRuns, PendingResults
from fencehold.runtime.outbox.worker_background import WorkerBackground

CLAIM_MAX = 500  # per turn: a larger concurrency is filled in several, and handlers run meanwhile


class Worker(RunningWorker):
    """Claims events and runs handlers on them, in `run`; made by `outbox.worker(...)`.

    It handles at most `concurrency` events at once, each under a lease that is renewed. The store records a result only
    while the event's lease is held.
    """

    kind = "worker"
    pause_s_max = 1.0

    def __init__(
        self,
        outbox: OutboxAccess,
        worker_id: str,
        handlers: Handlers,
        settings: WorkerSettings,
        *,
        saturated: Callable[[], bool] | None = None,
        with_reaper: bool = True,
    ) -> None:
        self.outbox, self.worker_id = outbox.name, worker_id
        self._context = context = WorkerContext(outbox, worker_id, handlers, settings)
        super().__init__(outbox.clock, context.facts, context.wake)
        self._facts = context.facts
        self._access, self._handlers, self._saturated = outbox, handlers, saturated
        self._background = WorkerBackground(context, self, with_reaper=with_reaper)
        self._results = PendingResults(context)
        self._runs = HandlerRuns(context, self._results)
        self._token_head, self._tokens = f"{worker_id}/{secrets.token_hex(4)}", 0
        self._paused = self._is_saturated = self._has_begun = False
        self._stuck: WorkerStuck | None = None
        #: Called from the keeper's thread when it gives up: while its event loop is blocked, `run` cannot raise. Keep
        #: it quick: while it runs, no lease of this process is renewed.
        self.on_stuck: Callable[[WorkerStuck], object] | None = None

    # --- what a program calls ---

    async def run(self) -> None:
        """Work until `stop()` is called. An outage of the store is waited out.

        Raises ConfigurationError when a retry cannot help (a missing table or right, no reaper), at first contact only:
        once a turn has succeeded, such an error is logged and retried too. Raises WorkerStuck when `give_up_after` is
        set and for that long nothing could be handled.
        """
        self._begin_run()
        self._events = self._access.make_events()
        self._events.hints.on_hint(lambda *_: self._hint())
        self._access.context.workers.add(self)
        pump = None
        try:
            await self._begin()
            self._has_begun = True
            self._facts.worker_started(concurrency=self.settings.concurrency)
            await self._listen()
            pump = asyncio.create_task(self._pump(), name=f"fencehold worker {self.worker_id}")
            await asyncio.shield(pump)
            if self._stuck is not None:
                raise self._stuck
        except asyncio.CancelledError:
            await self._leave(pump)
            raise
        except BaseException as error:
            self._facts.worker_died(error=f"{type(error).__name__}: {error}")
            raise
        finally:
            has_run, self._stopping = self._has_begun or self._stopping, True
            self._handlers.close()
            self._runs.call_off()
            # Shielded: else a second cancel would leave the renewals and the reaper running.
            await asyncio.shield(asyncio.ensure_future(self._close(has_run)))

    async def _close(self, has_run: bool) -> None:
        await self._background.stop()
        await self._events.close()
        self._results.close()
        if has_run:  # else it never began to work
            self._facts.worker_stopped()
        self._access.context.workers.discard(self)
        self.stopped.set()

    def pause(self) -> None:
        """Claim nothing until `resume()` is called; the events in hand are finished. Callable on any thread."""
        self._on_loop(lambda: self._set_paused(True))

    def resume(self) -> None:
        self._on_loop(lambda: self._set_paused(False))

    async def probe(self) -> None:
        """Ask the store for what the worker needs, on the worker's own connection. Raises the error that it finds.

        Also raises the error of the worker's last request, because this one only reads and the worker must write.
        """
        events, failure = self._events if self._has_begun else None, None if self._paused else self._failure
        await self._access.probe(events, self._stopping, failure)

    @property
    def settings(self) -> WorkerSettings:
        """The settings as they are now: those not set by hand follow the outbox's lease, also when that changes."""
        return self._context.settings

    @property
    def shutdown_timeout_s(self) -> float:
        return self.settings.shutdown_timeout_s

    @property
    def in_flight(self) -> int:
        """How many handlers are running, including those that lost their lease and do not return."""
        return len(self._runs.claimed_events) + len(self._runs.strays)

    # --- the pump ---

    async def _begin(self) -> None:
        """Start the renewals, the watch and the reaper. If the store does not answer, try again until it does."""
        while not self._stopping:
            try:
                await self._background.start()
                self._outage.answered()
                return
            except ConfigurationError:
                raise
            except FenceholdError as error:
                await self._endure(error)

    async def _pump(self) -> None:
        next_poll_s = 0.0
        while not self._is_over():
            polls = self._clock.now_s() >= next_poll_s
            if polls:
                next_poll_s = self._clock.now_s() + self.settings.poll_every_s
            room = self._room()
            if not (self._results.has_news or (room and (self._more or polls))):
                if self._runs.waiting:
                    self._runs.begin()
                    await asyncio.sleep(0)  # quick handlers end here: the next turn records them
                else:
                    await self._rest(room, next_poll_s)
                continue
            await self._attempt(self._turn(room))

    def _is_over(self) -> bool:
        return self._stopping and (self._abandoned or not (self._runs.claimed_events or self._results.has_news))

    async def _rest(self, room: int, next_poll_s: float) -> None:
        """Wait until a handler ends or the database reports events; if there is room, at most until the next poll."""
        self._wake.clear()
        waits_for_poll = room or self._is_saturated
        pause_s = max(0.0, next_poll_s - self._clock.now_s()) if waits_for_poll else None
        await self._clock.wait(self._wake, pause_s)

    async def _turn(self, room: int) -> None:
        await self._results.record_failures(self._events.port)
        await self._results.hand_back(self._events.port)
        completed = self._results.take_completed()
        settings = self._access.settings
        ask = self._ask(min(room, CLAIM_MAX), settings)
        if ask:
            self._more = False  # before the request: this claim may miss the events of a hint that comes meanwhile
        sent_s = self._clock.now_s()
        try:
            turn = await self._meanwhile(
                self._events.port.turn([f.claim for f in completed], ask, settings.call_limit_s)
            )
        except BaseException:
            self._results.put_back(completed)
            raise
        if completed:
            self._results.log_completed(completed, turn.completed)
        if ask:
            self._more = self._more or len(turn.claims) == ask.limit
        if turn.claims:
            self._facts.events_claimed(claimed=len(turn.claims))
            self._take(turn.claims, sent_s, settings)

    async def _meanwhile(self, asking: Coroutine[Any, Any, Turn]) -> Turn:
        """Send the request, then start the waiting handlers, which run while the store works.

        Returns the store's answer.
        """
        if not self._runs.waiting:
            return await asking
        task = asyncio.ensure_future(asking)
        await asyncio.sleep(0)  # now the request is sent
        self._runs.begin()
        return await task

    def _ask(self, limit: int, settings: OutboxSettings) -> ClaimAsk | None:
        if not limit:
            return None
        self._tokens += 1
        token = f"{self._token_head}{self._tokens:x}"
        types = self._handlers.event_types
        # Suspects may have killed their workers: handle one at a time, else the others die with it again and again. A
        # suspect whose lease was lost does not count, even if its thread, which cannot be stopped, still runs.
        has_suspect = any(f.claim.is_suspect and not f.ended_because for f in self._runs.claimed_events.values())
        return ClaimAsk(
            limit, token, settings.lease_s, types, settings.in_order, may_miss=True,
            suspects_max=0 if has_suspect else 1,
        )  # fmt: skip

    def _room(self) -> int:
        """Return how many events could be started now; 0 while stopping, paused, or while `saturated` returns True."""
        room = self.settings.concurrency - len(self._runs.claimed_events)
        return room if room and not self._stopping and not self._paused and self._has_capacity() else 0

    def _has_capacity(self) -> bool:
        if self._saturated is None:
            return True
        try:
            is_saturated = bool(self._saturated())
        except Exception as error:  # noqa: BLE001 - a broken gauge must not stop the work
            self._facts.worker_hook_failed(error=f"{type(error).__name__}: {error}")
            is_saturated = False
        if is_saturated and not self._is_saturated:
            self._facts.worker_saturated()
        self._is_saturated = is_saturated
        return not is_saturated

    # --- one event ---

    def _take(self, claims: list[Claim], sent_s: float, settings: OutboxSettings) -> None:
        trusted_s = settings.trusted_s
        claimed_events = [ClaimedEvent(claim, self._clock, sent_s, trusted_s) for claim in claims]
        if self._clock.now_s() >= sent_s + trusted_s:  # this process stood still: begin nothing on a lease that is over
            for claim in claims:
                event_facts(self._facts, claim).event_lost(reason="granted_too_late")
            return
        self._runs.add(claimed_events)
        if settings.lease_s != self._access.settings.lease_s:
            self._reconfigured()  # these were claimed with the lease that was set before

    # --- called by other parts ---

    def _lost(self, claimed: ClaimedEvent) -> None:
        self._on_loop(lambda: self._runs.lose(claimed))

    def _give_up(self, error: WorkerStuck) -> None:
        """Stop the worker, and make `run` raise this error.

        Events whose handlers react to a cancel are handed back, if there is time.
        """
        if self._stuck is not None:
            return
        self._stuck = error
        self._facts.worker_gave_up(error=str(error))
        try:
            if self.on_stuck is not None:
                self.on_stuck(error)
        except Exception as raised:  # noqa: BLE001 - run() raises all the same
            text, store = f"{type(raised).__name__}: {raised}", self._access.context.store
            store.facts.callback_failed(callback="on_stuck", error=text, outbox=self.outbox, worker_id=self.worker_id)
        self._on_loop(self._begin_giving_up)

    def _reconfigured(self) -> None:
        self._background.nudge()

    def _hint(self) -> None:
        self._more = True
        self._wake.set()

    def _set_paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self._facts.worker_paused() if paused else self._facts.worker_resumed()
        self._hint()

    async def _listen(self) -> None:
        try:
            await self._events.hints.listen(self._access.settings.call_limit_s)
        except ConfigurationError:
            raise
        except FenceholdError:
            return  # hints only; every later connection tries again

    # --- the end ---

    def _log_stopping(self) -> None:
        self._facts.worker_stopping(in_flight=len(self._runs.claimed_events))

    def _log_store_failed(self, error: FenceholdError) -> None:
        self._facts.worker_store_failed(sql_error=str(error))

    def _cancel_handlers(self) -> None:
        self._runs.call_off()

    def _begin_giving_up(self) -> None:
        self._begin_stopping()
        self._runs.call_off()
        if self._loop is not None:
            self._loop.call_later(self._access.settings.call_limit_s, self._abandon)

    async def _leave(self, pump: asyncio.Task[None] | None) -> None:
        """Cancel the handlers because `run` was cancelled.

        Record their results if that takes no longer than one call.
        """
        self._begin_stopping()
        self._runs.call_off()
        if pump is not None:
            try:
                await asyncio.wait([pump], timeout=self._access.settings.call_limit_s)
            finally:
                pump.cancel()


def check_hook(hook: object) -> None:
    if hook is not None and (not callable(hook) or inspect.iscoroutinefunction(hook)):
        raise ConfigurationError(
            "saturated must be a plain function that says True while downstream is full.",
            hint="It is asked before every claim, so it must be quick: look at a gauge, do no I/O.",
            code="bad_handler",
        )
