"""Handles events: claims what it can start, runs handlers, records what came of them.

Shape of a turn: wait until there is something to say or to ask, say what was done and ask for the next events in one
round trip, start them. Turns never overlap, and no handler waits for one.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox_settings import OutboxSettings, WorkerSettings
from fencehold.model.retry import DecorrelatedJitter, RetryContext
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, ClaimAsk, Events, Turn
from fencehold.ports.facts import FactSink
from fencehold.ports.traces import TracePort
from fencehold.runtime.crew import Crew
from fencehold.runtime.flights import Flight, Teller
from fencehold.runtime.handlers import Handlers, Run
from fencehold.runtime.ledger import Ledger
from fencehold.runtime.stoppable import Stoppable

CLAIM_MAX = 500  # per turn: a larger concurrency is filled in several, and handlers run meanwhile
TROUBLE_S_MAX = 1.0
CANCEL_PART = 0.9  # of the shutdown timeout: then handlers are cancelled, and have the rest to end


class Worker(Stoppable):
    """At most `concurrency` events at once, each under a lease that is renewed; results count only while it holds."""

    def __init__(
        self,
        outbox: str,
        worker_id: str,
        handlers: Handlers,
        settings: WorkerSettings,
        outbox_settings: Callable[[], OutboxSettings],
        *,
        make_events: Callable[[], Events],
        crew: Crew,
        clock: Clock,
        facts: FactSink,
        traces: TracePort,
        saturated: Callable[[], Any] | None,
        workers: set[Worker],
    ) -> None:
        super().__init__()
        self.outbox, self.worker_id, self.settings = outbox, worker_id, settings
        self._handlers, self._outbox_settings = handlers, outbox_settings
        self._make_events, self._crew = make_events, crew
        self._clock, self._traces, self._saturated, self._workers = clock, traces, saturated, workers
        self._tell = Teller(facts, outbox, worker_id)
        self._ledger = Ledger(outbox_settings, settings.max_processing_s, clock=clock, tell=self._tell)
        self._flights: dict[int, Flight] = {}  # by identity: an event lost and claimed again may fly twice
        self._waiting: list[Flight] = []  # claimed, and about to be begun
        self._token_head, self._tokens = f"{worker_id}/{secrets.token_hex(4)}", 0
        self._wake = asyncio.Event()
        self._stopping = self._paused = self._is_saturated = self._abandoned = False
        self._more = True  # worth asking for events: at the start, after a hint, after a claim that came back full
        self._trouble = DecorrelatedJitter(base_s=0.05, max_s=TROUBLE_S_MAX)
        self._troubles = 0

    # --- what a program calls ---

    async def run(self) -> None:
        """Work until `stop()`; raises only for what no retry can mend (a missing table, a missing reaper)."""
        if self._loop is not None:
            raise ConfigurationError("This worker has been run already.", hint="Make another.", code="already_run")
        self._loop = asyncio.get_running_loop()
        self._events = self._make_events()
        self._events.hints.on_added(self._hint)
        self._workers.add(self)
        pump = None
        try:
            await self._begin()
            self._tell("worker_started", concurrency=self.settings.concurrency)
            await self._listen()
            pump = asyncio.create_task(self._pump(), name=f"fencehold worker {self.worker_id}")
            await asyncio.shield(pump)
        except asyncio.CancelledError:
            await self._leave(pump)
            raise
        except BaseException as error:
            self._tell("worker_died", error=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._cancel_rest()
            await self._crew.stop()
            self._handlers.close()
            await self._events.close()
            self._tell("worker_stopped")
            self._workers.discard(self)
            self.stopped.set()

    def stop(self) -> None:
        """Claim no more, finish what is in hand within the shutdown timeout, then return from `run`. Any thread."""
        self._on_loop(self._begin_stopping)

    def pause(self) -> None:
        """Claim nothing until `resume()`; what is in hand goes on. Any thread."""
        self._on_loop(lambda: self._set_paused(True))

    def resume(self) -> None:
        self._on_loop(lambda: self._set_paused(False))

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    # --- the pump ---

    async def _begin(self) -> None:
        """Once the store answers: one that is away just now is no reason to give up."""
        while not self._stopping:
            try:
                await self._crew.start(self)
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
            if not (self._ledger.has_news or (room and (self._more or polls))):
                if self._waiting:
                    self._begin_handlers()
                    await asyncio.sleep(0)  # what is quick is done by now, and goes along with the next turn
                else:
                    await self._rest(room, next_poll_s)
                continue
            try:
                await self._turn(room, polls)
                self._troubles = 0
            except ConfigurationError:
                raise
            except FenceholdError as error:
                await self._endure(error)

    def _is_over(self) -> bool:
        return self._stopping and (self._abandoned or not (self._flights or self._ledger.has_news))

    async def _rest(self, room: int, next_poll_s: float) -> None:
        """Until a handler ends or a hint comes; with room to spare, no longer than until the next poll."""
        self._wake.clear()
        waits_for_poll = room or self._is_saturated
        pause_s = max(0.0, next_poll_s - self._clock.now_s()) if waits_for_poll else None
        await self._clock.wait(self._wake, pause_s)

    async def _turn(self, room: int, polls: bool) -> None:
        await self._ledger.record_failures(self._events.port)
        await self._ledger.hand_back(self._events.port)
        completed = self._ledger.take_completed()
        settings = self._outbox_settings()
        is_idle = not self._flights and not completed
        ask = self._ask(min(room, CLAIM_MAX), settings, polls or is_idle or any(f.claim.recovered for f in completed))
        if ask:
            self._more = False  # before asking: a hint that comes meanwhile is of what this claim may not have seen
        sent_s = self._clock.now_s()
        try:
            turn = await self._meanwhile(
                self._events.port.turn([f.claim for f in completed], ask, settings.call_limit_s)
            )
        except FenceholdError:
            self._ledger.put_back(completed)
            raise
        if completed:
            self._ledger.tell_completed(completed, turn.completed)
        if ask:
            self._more = self._more or len(turn.claims) == ask.limit
        if turn.claims:
            self._tell("events_claimed", claimed=len(turn.claims))
            self._take(turn.claims, sent_s, settings)

    async def _meanwhile(self, asking: Coroutine[Any, Any, Turn]) -> Turn:
        """The question is sent first, then the handlers begin: they run while the store works."""
        if not self._waiting:
            return await asking
        task = asyncio.ensure_future(asking)
        await asyncio.sleep(0)  # now it is under way
        self._begin_handlers()
        return await task

    def _ask(self, limit: int, settings: OutboxSettings, sweep: bool) -> ClaimAsk | None:
        if not limit:
            return None
        self._tokens += 1
        token = f"{self._token_head}{self._tokens:x}"
        types = self._handlers.event_types
        # Of events that a worker died of, one at a time: the others of its batch must not die of it again and again.
        recovered_max = 0 if any(f.claim.recovered for f in self._flights.values()) else 1
        return ClaimAsk(
            limit, token, settings.lease_s, types, settings.in_order, sweep, patient=True, recovered_max=recovered_max
        )

    def _room(self) -> int:
        """How many events could be started now; none while stopping, paused, or while downstream is full."""
        room = self.settings.concurrency - len(self._flights)
        return room if room and not self._stopping and not self._paused and self._has_capacity() else 0

    def _has_capacity(self) -> bool:
        if self._saturated is None:
            return True
        try:
            is_saturated = bool(self._saturated())
        except Exception as error:  # noqa: BLE001 - a broken gauge must not stop the work
            self._tell("worker_hook_failed", error=f"{type(error).__name__}: {error}")
            is_saturated = False
        if is_saturated and not self._is_saturated:
            self._tell("worker_saturated")
        self._is_saturated = is_saturated
        return not is_saturated

    async def _endure(self, error: FenceholdError) -> None:
        """The store is away: what is held is the heartbeat's concern; try again soon, not in a storm."""
        self._troubles += 1
        self._tell("worker_store_failed", sql_error=str(error))
        delay_s = self._trouble.next_delay_s(RetryContext(self._troubles, 0.0, error))
        await asyncio.sleep(min(TROUBLE_S_MAX, delay_s or TROUBLE_S_MAX))
        self._more = True

    # --- one event ---

    def _take(self, claims: list[Claim], sent_s: float, settings: OutboxSettings) -> None:
        trusted_s = settings.lease_s - settings.margin_s
        flights = [Flight(claim, sent_s, trusted_s) for claim in claims]
        if self._clock.now_s() >= sent_s + trusted_s:  # this process stood still: begin nothing on a lease that is over
            for claim in claims:
                self._tell.event("event_lost", claim, reason="granted_too_late")
            return
        for flight in flights:
            self._flights[id(flight)] = flight
        self._waiting += flights
        if settings.lease_s != self._outbox_settings().lease_s:
            self.reconfigured()  # these have the lease of before

    def _begin_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        flights, self._waiting = self._waiting, []
        for flight in [f for f in flights if f.called_off or f.lost]:
            self._ended(flight, asyncio.CancelledError())
        flights = [f for f in flights if not (f.called_off or f.lost)]
        if self.settings.batch_size is None:
            for flight in flights:
                flight.task = loop.create_task(self._handle(flight))
            return
        for run, batch in batches(self._handlers, flights, self.settings.batch_size):
            task = loop.create_task(self._handle_batch(run, batch))
            for flight in batch:
                flight.task = task

    async def _handle_batch(self, run: Run, batch: list[Flight]) -> None:
        """One call for all of them: what it returns or raises is the outcome of each that is still ours."""
        error: BaseException | None = None
        try:
            await run([flight.claim for flight in batch])
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is a failed try
            error = raised
        for flight in batch:
            self._ended(flight, error)
        if isinstance(error, KeyboardInterrupt):
            raise error

    async def _handle(self, flight: Flight) -> None:
        claim = flight.claim
        if self._clock.now_s() >= flight.deadline_s:  # this process stood still before its turn came
            self._ended(flight, None)
            return
        try:
            run = self._handlers.only or self._handlers.of(claim)
            if (span := self._traces.handling(self.outbox, self.worker_id, claim)) is None:
                await run(claim)
            else:
                with span:
                    await run(claim)
        except KeyboardInterrupt as error:
            self._ended(flight, error)
            raise  # Ctrl-C means the program
        except BaseException as error:  # noqa: BLE001 - whatever it raises, sys.exit() too, is a failed try
            self._ended(flight, error)
        else:
            self._ended(flight, None)

    def _ended(self, flight: Flight, error: BaseException | None) -> None:
        self._flights.pop(id(flight), None)
        self._ledger.ended(flight, error)
        self._wake.set()

    # --- being told ---

    def lost(self, flight: Flight) -> None:
        """From the keeper's thread; its state has flipped already, this stops the handler."""
        self._on_loop(lambda: flight.task.cancel() if flight.task and not flight.task.done() else None)

    @property
    def flights(self) -> dict[int, Flight]:
        return self._flights

    def reconfigured(self) -> None:
        self._crew.nudge()

    @property
    def tell(self) -> Teller:
        return self._tell

    def _hint(self) -> None:
        self._more = True
        self._wake.set()

    def _set_paused(self, paused: bool) -> None:
        if paused != self._paused:
            self._paused = paused
            self._tell("worker_paused" if paused else "worker_resumed")
        self._more = True
        self._wake.set()

    async def _listen(self) -> None:
        try:
            await self._events.hints.listen(self._outbox_settings().call_limit_s)
        except ConfigurationError:
            raise
        except FenceholdError:
            return  # hints only; every later connection tries again

    # --- the end ---

    def _begin_stopping(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._tell("worker_stopping", in_flight=len(self._flights))
        self._wake.set()
        if self._loop is not None:
            timeout_s = self.settings.shutdown_timeout_s
            self._loop.call_later(timeout_s * CANCEL_PART, self._cancel_rest)
            self._loop.call_later(timeout_s, self._abandon)

    def _cancel_rest(self) -> None:
        for flight in list(self._flights.values()):
            flight.called_off = True
            if flight.task is not None:
                flight.task.cancel()

    def _abandon(self) -> None:
        """Handlers that do not even heed a cancel are left behind; the reaper has their events."""
        self._abandoned = True
        self._wake.set()

    async def _leave(self, pump: asyncio.Task[None] | None) -> None:
        """`run` was cancelled: handlers stop now; what they leave is recorded if that takes no longer than a call."""
        self._begin_stopping()
        self._cancel_rest()
        if pump is not None:
            await asyncio.wait([pump], timeout=self._outbox_settings().call_limit_s)
            pump.cancel()


def check_hook(hook: object) -> None:
    if hook is not None and (not callable(hook) or inspect.iscoroutinefunction(hook)):
        raise ConfigurationError(
            "saturated must be a plain function that says True while downstream is full.",
            hint="It is asked before every claim, so it must be quick: look at a gauge, do no I/O.",
            code="bad_handler",
        )


def batches(handlers: Handlers, flights: list[Flight], size: int) -> list[tuple[Run, list[Flight]]]:
    """Events of one handler together, at most `size` at a time."""
    by_run: dict[Run, list[Flight]] = {}
    for flight in flights:
        by_run.setdefault(handlers.of(flight.claim), []).append(flight)
    return [(run, same[i : i + size]) for run, same in by_run.items() for i in range(0, len(same), size)]
