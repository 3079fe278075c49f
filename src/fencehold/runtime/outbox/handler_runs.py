"""Runs the handlers of claimed events, and keeps their results until the store has recorded them.

A worker has as many places as it may handle events at once. An event takes one place from its claim to the end of its
handler. If its lease is lost, the handler is cancelled. If the handler runs on all the same, its place becomes free
after a moment, unless it is running on a thread, which cannot be stopped. No result is recorded for an event that is
not ours any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fencehold.ports.events import Claim, EventPort, Failure, Key
from fencehold.runtime.core.renewals import TOO_LONG
from fencehold.runtime.handlers.error_text import described, from_the_handler, in_full, stored
from fencehold.runtime.handlers.handlers import Handlers, Reject, Run
from fencehold.runtime.outbox.context import ClaimedEvent, WorkerContext, event_facts

REFUSED = "refused"  # by the store
UNCONFIRMED = "unconfirmed"  # the worker was over before the store had taken the result

Call = asyncio.Task[None] | None
Errors = Mapping[ClaimedEvent, BaseException]


LOST_GRACE_S = 1.0  # a cancelled handler may clean up; then its place is free
LOST_GRACE_S_MIN = 0.1
STRAYS_MAX = 100  # so many handlers may run on without a place; any more keep theirs


class PendingResults:
    """The results of the events that a worker has handled, until the store has recorded them."""

    def __init__(self, worker: WorkerContext) -> None:
        self._worker, self._clock, self._facts = worker, worker.clock, worker.facts
        self._rng = random.Random()
        self._completed: list[ClaimedEvent] = []
        self._failed: list[tuple[ClaimedEvent, BaseException]] = []
        self._called_off: list[ClaimedEvent] = []
        self._strays_shown: set[Call] = set()
        self._is_closed = False

    @property
    def has_news(self) -> bool:
        return bool(self._completed or self._failed or self._called_off)

    def ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
        """Record that an event's handler has ended; called once for each event.

        `error`: what the handler raised, if it did.
        """
        self._worker.wake.set()
        if claimed.ended_because == TOO_LONG:
            event_facts(self._facts, claimed.claim).event_aborted(reason=claimed.ended_because)
            error = self._too_long(error)
        if self._is_closed:
            self._log_lost([claimed], {} if error is None else {claimed: error}, UNCONFIRMED)
        elif error is None:
            self._completed.append(claimed)
        elif isinstance(error, asyncio.CancelledError) and claimed.called_off and not claimed.ended_because:
            self._called_off.append(claimed)
        else:
            self._failed.append((claimed, error))

    def _too_long(self, ended: BaseException | None) -> TimeoutError:
        """Return the error for a handler that took longer than max_processing.

        Its cause is how the handler ended: usually its cancellation, whose traceback shows where the handler was.
        """
        limit_s = self._worker.settings.max_processing_s
        error = TimeoutError(f"aborted: the handler took longer than max_processing ({limit_s:g} s)")
        error.__cause__ = ended and from_the_handler(ended)
        return error

    def take_completed(self) -> list[ClaimedEvent]:
        completed, self._completed = self._ours(self._completed), []
        return completed

    def put_back(self, completed: list[ClaimedEvent]) -> None:
        """Keep the results of these events for the next turn, because the store may not have recorded them."""
        self._completed = completed + self._completed

    def _ours(self, ended: list[ClaimedEvent], errors: Errors | None = None) -> list[ClaimedEvent]:
        """Return the events whose results may be recorded, because their leases are still held.

        The other events are logged as lost, and the reaper recovers them.
        """
        now_s = self._clock.now_s()
        ours = [claimed for claimed in ended if not claimed.ended_because and now_s < claimed.deadline_s]
        if len(ours) < len(ended):
            self._log_lost([f for f in ended if f.ended_because or now_s >= f.deadline_s], errors or {})
        return ours

    def _log_lost(self, claimed_events: list[ClaimedEvent], errors: Errors, reason: str = "") -> None:
        """Log that these events' results were not recorded, with their handlers' errors: no other line shows them."""
        for claimed, raised in _raised(claimed_events, errors):
            event_facts(self._facts, claimed.claim).event_lost(reason=reason or claimed.why_over, **raised)

    def stray_ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
        """Log the end of a handler that had lost its place.

        The event's result was dealt with when its lease was lost.
        """
        [(_, raised)] = _raised([claimed], {} if error is None else {claimed: error}, self._strays_shown)
        self._strays_shown = {claimed.task}
        age_s = round(self._clock.now_s() - claimed.started_s, 1)
        handler = self._worker.handler_name(claimed.claim)
        event_facts(self._facts, claimed.claim).handler_ended_late(handler=handler, age_s=age_s, **raised)

    def close(self) -> None:
        """Record no more results: log those not yet recorded and those that come later.

        The reaper recovers their events.
        """
        self._is_closed = True
        errors = dict(self._failed)
        self._log_lost([*self._completed, *errors, *self._called_off], errors, UNCONFIRMED)
        self._completed, self._failed, self._called_off = [], [], []

    async def hand_back(self, port: EventPort) -> None:
        """Give back the events whose handlers the stopping worker has cancelled: they are due again at once.

        Such a handling is not counted as a try: else a few deploys could make an event a dead letter.
        """
        if not self._called_off:
            return
        ours, self._called_off = self._ours(self._called_off), []
        try:
            given_back = (
                await port.release([f.claim.key for f in ours], self._worker.outbox.settings.call_limit_s)
                if ours
                else []
            )
        except BaseException:
            self._called_off = ours + self._called_off
            raise
        self._facts.events_handed_back(count=len(given_back))

    async def record_failures(self, port: EventPort) -> None:
        if not self._failed:
            return
        failed, self._failed = self._failed, []
        errors = dict(failed)
        ours = [f for f in errors if f.ended_because == TOO_LONG]
        ours += self._ours([f for f in errors if f.ended_because != TOO_LONG], errors)
        failures = [self._failure(claimed, errors[claimed]) for claimed in ours]
        try:
            recorded = await port.fail(failures, self._worker.outbox.settings.call_limit_s) if ours else []
        except BaseException:
            self._failed = [(f, errors[f]) for f in ours] + self._failed
            raise
        statuses = dict(recorded)
        for claimed, raised in _raised([f for f in ours if f.key in statuses], errors):
            attempt, status = claimed.claim.attempt, str(statuses[claimed.key])
            event_facts(self._facts, claimed.claim).event_failed(attempt=attempt, status=status, **raised)
        self._log_lost([f for f in ours if f.key not in statuses], errors, REFUSED)

    def _failure(self, claimed: ClaimedEvent, error: BaseException) -> Failure:
        delay_s = self._worker.outbox.settings.backoff.delay_s(claimed.claim.attempt, self._rng)
        may_retry = claimed.is_shared or not isinstance(error, Reject)  # Reject does not say which
        return Failure(claimed.claim.key, stored(error), delay_s, may_retry)

    def log_completed(self, asked: list[ClaimedEvent], accepted: Sequence[Key]) -> None:
        refused = len(asked) - len(accepted)
        if refused:
            known = {(key.id, key.token) for key in accepted}
            for claimed in [f for f in asked if (f.claim.id, f.claim.token) not in known]:
                event_facts(self._facts, claimed.claim).event_lost(reason=REFUSED)
        latencies_s = [self._latency_s(f) for f in asked] if self._facts.wants_latencies else None
        self._facts.events_completed(completed=len(accepted), refused=refused, latencies_s=latencies_s)

    def _latency_s(self, claimed: ClaimedEvent) -> float:
        """Return the seconds from the event's creation to its completion.

        They are measured by the store's clock until the last renewal, and by our clock since then.
        """
        claim = claimed.claim
        if claim.created_at is None or claim.locked_until is None:
            return 0.0
        held_s = (claim.locked_until - claim.created_at).total_seconds() - self._worker.outbox.settings.lease_s
        return max(0.0, held_s + self._clock.now_s() - claimed.renewed_s)


def _raised(
    claimed_events: list[ClaimedEvent], errors: Errors, shown: set[Call] | None = None
) -> Iterator[tuple[ClaimedEvent, dict[str, Any]]]:
    """Yield each event with fields for the log about the error of its handler; empty fields if there is no error.

    Events of one call share one traceback, which only the first of them gets. `shown`: calls whose traceback was logged
    before. A cancellation that the worker itself asked for is not an error of the handler.
    """
    shown = set(shown or ())
    for claimed in claimed_events:
        error = errors.get(claimed)
        is_asked_for = claimed.ended_because or claimed.called_off
        if error is None or (isinstance(error, asyncio.CancelledError) and is_asked_for):
            yield claimed, {}
            continue
        traceback = None if claimed.task in shown else in_full(error) or None
        shown.add(claimed.task)
        yield claimed, {"error": described(error), "traceback": traceback}


class HandlerRuns:
    """The events that a worker has in hand, and the tasks that run their handlers."""

    def __init__(self, worker: WorkerContext, results: PendingResults) -> None:
        self._worker, self._results = worker, results
        self._handlers, self._clock = worker.handlers, worker.clock
        self._traces = worker.outbox.context.store.traces
        self.claimed_events, self.strays = worker.claimed_events, worker.strays
        self.waiting: list[ClaimedEvent] = []  # claimed, and about to be begun

    def add(self, claimed_events: list[ClaimedEvent]) -> None:
        """Take these events in hand, each in a place of the worker; `begin` starts their handlers."""
        for claimed in claimed_events:
            self.claimed_events[id(claimed)] = claimed
        self.waiting += claimed_events

    def begin(self) -> None:
        """Start the handlers of all waiting events.

        An event whose lease was lost, or that was called off, before that gets no handler call: it ends here.
        """
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
        """End the events that the task left open: a task that is cancelled before its first step runs no code."""
        if not task.cancelled():
            task.exception()  # else asyncio prints that nobody read it: Ctrl-C has ended the event loop already
        left = [f for f in claimed_events if id(f) in self.claimed_events or id(f) in self.strays]
        if left:
            self._ended_together(left, asyncio.CancelledError())

    def call_off(self) -> None:
        """Cancel every handler because the worker stops. Such a cancel does not count as a failed try of the event."""
        for claimed in [*self.claimed_events.values(), *self.strays.values()]:
            claimed.called_off = True
            if claimed.task is not None:
                claimed.task.cancel()

    def lose(self, claimed: ClaimedEvent) -> None:
        """Cancel the handler of an event whose lease was lost.

        Its place becomes free soon, even if the handler runs on.
        """
        if claimed.task is not None and not claimed.task.done():
            claimed.task.cancel()
            # Before its lease ends, if possible: then the store can still record that it took too long.
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
        """Call the handler once for the whole list of events.

        What the handler returns or raises is the result of each event that is still ours.
        """
        error: BaseException | None = None
        try:
            await run([claimed.claim for claimed in batch])
        except BaseException as raised:  # noqa: BLE001 - whatever it raises is a failed try
            error = raised
        self._ended_together(batch, error)
        if isinstance(error, KeyboardInterrupt):
            raise error

    def _ended_together(self, batch: list[ClaimedEvent], error: BaseException | None) -> None:
        """End all events of one call of a handler with the call's outcome.

        If the call was cancelled because one event's lease was lost, the other events have not failed. If the call was
        cancelled because it took too long, all of them have: the heartbeat may only not have looked at the others yet.
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
            raise  # Ctrl-C is meant for the whole program
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
    """Group the events into one list per handler, of at most `size`.

    An event that has failed before gets a list of its own. An event whose lease was lost before, and an event on its
    last try, get a list of their own too. The row of an event shows to every worker which of these hold. So an event
    costs the others of its list at most one try, and makes none of them a dead letter.
    """
    by_run: dict[Run, list[ClaimedEvent]] = {}
    for claimed in [f for f in claimed_events if _may_share(f.claim)]:
        by_run.setdefault(handlers.of(claimed.claim), []).append(claimed)
    together = [(run, same[i : i + size]) for run, same in by_run.items() for i in range(0, len(same), size)]
    return together + [(handlers.of(f.claim), [f]) for f in claimed_events if not _may_share(f.claim)]


def _may_share(claim: Claim) -> bool:
    return claim.attempt == 1 and claim.attempt < claim.max_retries
