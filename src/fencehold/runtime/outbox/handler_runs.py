"""Runs the handlers of claimed events, one by one or in batches, and passes on what came of each event.

A place is taken from the claim to the end of the handler. A handler whose lease was lost is cancelled. If it runs on
all the same, its place is free after a moment, unless a thread is at work, which nothing can stop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from fencehold.ports.events import Claim
from fencehold.runtime.core.renewals import TOO_LONG
from fencehold.runtime.handlers.handlers import Handlers, Run
from fencehold.runtime.outbox.claimed_event import ClaimedEvent
from fencehold.runtime.outbox.worker_context import WorkerContext

LOST_GRACE_S = 1.0  # a cancelled handler may clean up; then its place is free
LOST_GRACE_S_MIN = 0.1
STRAYS_MAX = 100  # handlers that run on without a place: beyond that they keep theirs


class Results(Protocol):
    """What becomes of each event: `error` is what its handler raised, or None."""

    def ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
        """Called once for each event."""
        ...

    def stray_ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
        """Called when a handler that ran on after its place was freed has ended at last."""
        ...


class HandlerRuns:
    """The events that a worker has in hand."""

    def __init__(self, worker: WorkerContext, results: Results) -> None:
        self._worker, self._results = worker, results
        self._handlers, self._clock = worker.handlers, worker.clock
        self._traces = worker.outbox.context.store.traces
        self.claimed_events, self.strays = worker.claimed_events, worker.strays
        self.waiting: list[ClaimedEvent] = []  # claimed, and about to be begun

    def add(self, claimed_events: list[ClaimedEvent]) -> None:
        """Put them in hand; `begin` starts their handlers."""
        for claimed in claimed_events:
            self.claimed_events[id(claimed)] = claimed
        self.waiting += claimed_events

    def begin(self) -> None:
        """Start the handlers of all that wait; those that were lost or called off before that end here."""
        loop = asyncio.get_running_loop()
        claimed_events, self.waiting = self.waiting, []
        for claimed in [f for f in claimed_events if f.called_off or f.ended_because]:
            self._ended(claimed, asyncio.CancelledError())
        claimed_events = [f for f in claimed_events if not (f.called_off or f.ended_because)]
        if (batch_size := self._worker.settings.batch_size) is None:
            for claimed in claimed_events:
                claimed.task = loop.create_task(self._handle(claimed))
                claimed.task.add_done_callback(partial(self._task_done, [claimed]))
            return
        for run, batch in batches(self._handlers, claimed_events, batch_size):
            task = loop.create_task(self._handle_batch(run, batch))
            for claimed in batch:
                claimed.task, claimed.is_shared = task, len(batch) > 1
            task.add_done_callback(partial(self._task_done, batch))

    def _task_done(self, claimed_events: list[ClaimedEvent], task: asyncio.Task[None]) -> None:
        """End what the task has not ended: one that is cancelled before its first step runs nothing at all."""
        if not task.cancelled():
            task.exception()  # Ctrl-C has ended the event loop already; asyncio would print that nobody looked at it
        left = [f for f in claimed_events if id(f) in self.claimed_events or id(f) in self.strays]
        if left:
            self._ended_together(left, asyncio.CancelledError())

    def call_off(self) -> None:
        """Cancel every handler because the worker stops: no fault of the events."""
        for claimed in [*self.claimed_events.values(), *self.strays.values()]:
            claimed.called_off = True
            if claimed.task is not None:
                claimed.task.cancel()

    def lose(self, claimed: ClaimedEvent) -> None:
        """Cancel the handler of an event whose lease was lost; its place is free soon, whether it heeds that or not."""
        if claimed.task is not None and not claimed.task.done():
            claimed.task.cancel()
            # Within its lease, where some is left: then that it took too long can still be recorded.
            grace_s = min(LOST_GRACE_S, max(LOST_GRACE_S_MIN, (claimed.deadline_s - self._clock.now_s()) / 2))
            asyncio.get_running_loop().call_later(grace_s, self._free, claimed)

    def _free(self, claimed: ClaimedEvent) -> None:
        if id(claimed) not in self.claimed_events or self._handlers.is_on_thread(claimed.task):
            return
        if len(self.strays) >= STRAYS_MAX:
            asyncio.get_running_loop().call_later(LOST_GRACE_S, self._free, claimed)
            return
        del self.claimed_events[id(claimed)]
        self.strays[id(claimed)] = claimed
        self._results.ended(claimed, asyncio.CancelledError())

    async def _handle_batch(self, run: Run, batch: list[ClaimedEvent]) -> None:
        """One call for all of them: what it returns or raises is the outcome of each that is still ours."""
        error: BaseException | None = None
        try:
            await run([claimed.claim for claimed in batch])
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is a failed try
            error = raised
        self._ended_together(batch, error)
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _ended_together(self, batch: list[ClaimedEvent], error: BaseException | None) -> None:
        """A call that was cancelled because one of its events lost its lease is no fault of the others.

        If that one took too long, all of them did: its heartbeat may only not have come to the others yet.
        """
        reasons = {claimed.ended_because for claimed in batch if claimed.ended_because}
        if reasons and isinstance(error, asyncio.CancelledError):
            for claimed in batch:
                claimed.called_off = True
                if TOO_LONG in reasons:
                    claimed.end(TOO_LONG)
        for claimed in batch:
            self._ended(claimed, error)

    async def _handle(self, claimed: ClaimedEvent) -> None:
        claim = claimed.claim
        if self._clock.now_s() >= claimed.deadline_s:  # this process stood still before its turn came
            self._ended(claimed, None)
            return
        try:
            run = self._handlers.only or self._handlers.of(claim)
            if (span := self._traces.handling(self._worker.outbox.name, self._worker.worker_id, claim)) is None:
                await run(claim)
            else:
                with span:
                    await run(claim)
        except KeyboardInterrupt as error:
            self._ended(claimed, error)
            raise  # Ctrl-C means the program
        except BaseException as error:  # noqa: BLE001 - whatever it raises, sys.exit() too, is a failed try
            self._ended(claimed, error)
        else:
            self._ended(claimed, None)

    def _ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
        if self.strays.pop(id(claimed), None) is not None:
            self._results.stray_ended(claimed, error)  # what came of the event was passed on when its place was freed
            return
        self.claimed_events.pop(id(claimed), None)
        self._results.ended(claimed, error)


def batches(handlers: Handlers, claimed_events: list[ClaimedEvent], size: int) -> list[tuple[Run, list[ClaimedEvent]]]:
    """Events of one handler together, at most `size` at a time; in a list of its own what may not share its fate.

    That is every event with a failed or lost try behind it, whose row says so to every worker, and one on its last try:
    an event costs the others of its list one try at most, and buries none of them.
    """
    by_run: dict[Run, list[ClaimedEvent]] = {}
    for claimed in [f for f in claimed_events if _may_share(f.claim)]:
        by_run.setdefault(handlers.of(claimed.claim), []).append(claimed)
    together = [(run, same[i : i + size]) for run, same in by_run.items() for i in range(0, len(same), size)]
    return together + [(handlers.of(f.claim), [f]) for f in claimed_events if not _may_share(f.claim)]


def _may_share(claim: Claim) -> bool:
    return claim.attempt == 1 and claim.attempt < claim.max_retries
