"""Runs the handlers of claimed events, one by one or in batches, and passes on what came of each event.

A place is taken from the claim to the end of the handler. A handler whose lease was lost is cancelled. If it runs on
all the same, its place is free after a moment, unless a thread is at work, which nothing can stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim
from fencehold.ports.traces import TracePort
from fencehold.runtime.core.heartbeat import TOO_LONG
from fencehold.runtime.handlers.handlers import Handlers, Run
from fencehold.runtime.outbox.claimed_event import Flight

LOST_GRACE_S = 1.0  # a cancelled handler may clean up; then its place is free
LOST_GRACE_S_MIN = 0.1
STRAYS_MAX = 100  # handlers that run on without a place: beyond that they keep theirs

OnEnded = Callable[[Flight, BaseException | None], None]


class HandlerRuns:
    """The events a worker has in hand. `on_ended` is called once for each, with what its handler raised, or None.

    `on_stray_ended`: the same of a handler that ran on after its place was freed, when it ends at last.
    """

    def __init__(
        self,
        outbox: str,
        worker_id: str,
        handlers: Handlers,
        batch_size: int | None,
        *,
        clock: Clock,
        traces: TracePort,
        on_ended: OnEnded,
        on_stray_ended: OnEnded,
    ) -> None:
        self._outbox, self._worker_id = outbox, worker_id
        self._handlers, self._batch_size = handlers, batch_size
        self._clock, self._traces = clock, traces
        self._on_ended, self._on_stray_ended = on_ended, on_stray_ended
        self.flights: dict[int, Flight] = {}  # by identity: an event lost and claimed again may be in hand twice
        self.waiting: list[Flight] = []  # claimed, and about to be begun
        self.strays: dict[int, Flight] = {}  # lost, with handlers that run on: they have no place any more

    def add(self, flights: list[Flight]) -> None:
        """Put them in hand; `begin` starts their handlers."""
        for flight in flights:
            self.flights[id(flight)] = flight
        self.waiting += flights

    def begin(self) -> None:
        """Start the handlers of all that wait; those that were lost or called off before that end here."""
        loop = asyncio.get_running_loop()
        flights, self.waiting = self.waiting, []
        for flight in [f for f in flights if f.called_off or f.lost]:
            self._ended(flight, asyncio.CancelledError())
        flights = [f for f in flights if not (f.called_off or f.lost)]
        if self._batch_size is None:
            for flight in flights:
                flight.task = loop.create_task(self._handle(flight))
                flight.task.add_done_callback(partial(self._task_done, [flight]))
            return
        for run, batch in batches(self._handlers, flights, self._batch_size):
            task = loop.create_task(self._handle_batch(run, batch))
            for flight in batch:
                flight.task, flight.is_shared = task, len(batch) > 1
            task.add_done_callback(partial(self._task_done, batch))

    def _task_done(self, flights: list[Flight], task: asyncio.Task[None]) -> None:
        """End what the task has not ended: one that is cancelled before its first step runs nothing at all."""
        if not task.cancelled():
            task.exception()  # Ctrl-C has ended the event loop already; asyncio would print that nobody looked at it
        left = [f for f in flights if id(f) in self.flights or id(f) in self.strays]
        if left:
            self._ended_together(left, asyncio.CancelledError())

    def call_off(self) -> None:
        """Cancel every handler because the worker stops: no fault of the events."""
        for flight in [*self.flights.values(), *self.strays.values()]:
            flight.called_off = True
            if flight.task is not None:
                flight.task.cancel()

    def lose(self, flight: Flight) -> None:
        """Cancel the handler of an event whose lease was lost; its place is free soon, whether it heeds that or not."""
        if flight.task is not None and not flight.task.done():
            flight.task.cancel()
            # Within its lease, where some is left: then that it took too long can still be recorded.
            grace_s = min(LOST_GRACE_S, max(LOST_GRACE_S_MIN, (flight.deadline_s - self._clock.now_s()) / 2))
            asyncio.get_running_loop().call_later(grace_s, self._free, flight)

    def _free(self, flight: Flight) -> None:
        if id(flight) not in self.flights or self._handlers.is_on_thread(flight.task):
            return
        if len(self.strays) >= STRAYS_MAX:
            asyncio.get_running_loop().call_later(LOST_GRACE_S, self._free, flight)
            return
        del self.flights[id(flight)]
        self.strays[id(flight)] = flight
        self._on_ended(flight, asyncio.CancelledError())

    async def _handle_batch(self, run: Run, batch: list[Flight]) -> None:
        """One call for all of them: what it returns or raises is the outcome of each that is still ours."""
        error: BaseException | None = None
        try:
            await run([flight.claim for flight in batch])
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is a failed try
            error = raised
        self._ended_together(batch, error)
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _ended_together(self, batch: list[Flight], error: BaseException | None) -> None:
        """A call that was cancelled because one of its events lost its lease is no fault of the others.

        If that one took too long, all of them did: its heartbeat may only not have come to the others yet.
        """
        reasons = {flight.lost for flight in batch if flight.lost}
        if reasons and isinstance(error, asyncio.CancelledError):
            for flight in batch:
                flight.called_off = True
                if TOO_LONG in reasons:
                    flight.lose(TOO_LONG)
        for flight in batch:
            self._ended(flight, error)

    async def _handle(self, flight: Flight) -> None:
        claim = flight.claim
        if self._clock.now_s() >= flight.deadline_s:  # this process stood still before its turn came
            self._ended(flight, None)
            return
        try:
            run = self._handlers.only or self._handlers.of(claim)
            if (span := self._traces.handling(self._outbox, self._worker_id, claim)) is None:
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
        if self.strays.pop(id(flight), None) is not None:
            self._on_stray_ended(flight, error)  # what came of the event was passed on when its place was freed
            return
        self.flights.pop(id(flight), None)
        self._on_ended(flight, error)


def batches(handlers: Handlers, flights: list[Flight], size: int) -> list[tuple[Run, list[Flight]]]:
    """Events of one handler together, at most `size` at a time; in a list of its own what may not share its fate.

    That is every event with a failed or lost try behind it, whose row says so to every worker, and one on its last try:
    an event costs the others of its list one try at most, and buries none of them.
    """
    by_run: dict[Run, list[Flight]] = {}
    for flight in [f for f in flights if _may_share(f.claim)]:
        by_run.setdefault(handlers.of(flight.claim), []).append(flight)
    together = [(run, same[i : i + size]) for run, same in by_run.items() for i in range(0, len(same), size)]
    return together + [(handlers.of(f.claim), [f]) for f in flights if not _may_share(f.claim)]


def _may_share(claim: Claim) -> bool:
    return claim.attempt == 1 and claim.attempt < claim.max_retries
