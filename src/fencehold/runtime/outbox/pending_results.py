"""What came of each event a worker handled, until the store has taken it: nothing is recorded that is not ours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fencehold.ports.events import EventPort, Failure, Key
from fencehold.runtime.core.renewals import TOO_LONG
from fencehold.runtime.handlers.error_text import described, from_the_handler, in_full, stored
from fencehold.runtime.handlers.handlers import Reject
from fencehold.runtime.outbox.claimed_event import ClaimedEvent
from fencehold.runtime.outbox.worker_context import WorkerContext, event_facts

REFUSED = "refused"  # by the store
UNCONFIRMED = "unconfirmed"  # the worker was over before the store had taken the result

Call = asyncio.Task[None] | None
Errors = Mapping[ClaimedEvent, BaseException]


class PendingResults:
    def __init__(self, worker: WorkerContext) -> None:
        self._worker, self._clock, self._facts = worker, worker.clock, worker.facts
        self._rng = random.Random()
        self._completed: list[ClaimedEvent] = []
        self._failed: list[tuple[ClaimedEvent, BaseException]] = []
        self._called_off: list[ClaimedEvent] = []
        self._strays_shown: set[Call] = set()
        self._is_closed = False

    @property
    def _limit_s(self) -> float:
        return self._worker.outbox_settings.call_limit_s

    @property
    def has_news(self) -> bool:
        return bool(self._completed or self._failed or self._called_off)

    def ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
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
        """Caused by how it ended: as a rule by its cancellation, whose traceback says where it was by then."""
        limit_s = self._worker.settings.max_processing_s
        error = TimeoutError(f"aborted: the handler took longer than max_processing ({limit_s:g} s)")
        error.__cause__ = ended and from_the_handler(ended)
        return error

    def take_completed(self) -> list[ClaimedEvent]:
        completed, self._completed = self._ours(self._completed), []
        return completed

    def put_back(self, completed: list[ClaimedEvent]) -> None:
        """Perhaps recorded, perhaps not: asked again, never forgotten."""
        self._completed = completed + self._completed

    def _ours(self, ended: list[ClaimedEvent], errors: Errors | None = None) -> list[ClaimedEvent]:
        """Those whose result may be recorded; of the others it is told, and the reaper has their events."""
        now_s = self._clock.now_s()
        ours = [claimed for claimed in ended if not claimed.ended_because and now_s < claimed.deadline_s]
        if len(ours) < len(ended):
            self._log_lost([f for f in ended if f.ended_because or now_s >= f.deadline_s], errors or {})
        return ours

    def _log_lost(self, claimed_events: list[ClaimedEvent], errors: Errors, reason: str = "") -> None:
        """With what the handler raised: nothing else will say it."""
        for claimed, raised in _raised(claimed_events, errors):
            event_facts(self._facts, claimed.claim).event_lost(reason=reason or claimed.why_over, **raised)

    def stray_ended(self, claimed: ClaimedEvent, error: BaseException | None) -> None:
        """A handler that ran on without a place has come to its end; its event was accounted for when it was lost."""
        [(_, raised)] = _raised([claimed], {} if error is None else {claimed: error}, self._strays_shown)
        self._strays_shown = {claimed.task}
        age_s = round(self._clock.now_s() - claimed.started_s, 1)
        handler = self._worker.handler_name(claimed.claim)
        event_facts(self._facts, claimed.claim).handler_ended_late(handler=handler, age_s=age_s, **raised)

    def close(self) -> None:
        """Nothing is recorded any more: what was not, and what ends from now on, is told and left to the reaper."""
        self._is_closed = True
        errors = dict(self._failed)
        self._log_lost([*self._completed, *errors, *self._called_off], errors, UNCONFIRMED)
        self._completed, self._failed, self._called_off = [], [], []

    async def hand_back(self, port: EventPort) -> None:
        """What a stopping worker called off: due again at once, and no try, or a deploy could bury an event."""
        if not self._called_off:
            return
        ours, self._called_off = self._ours(self._called_off), []
        try:
            given_back = await port.release([f.claim.key for f in ours], self._limit_s) if ours else []
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
            recorded = await port.fail(failures, self._limit_s) if ours else []
        except BaseException:
            self._failed = [(f, errors[f]) for f in ours] + self._failed
            raise
        statuses = dict(recorded)
        for claimed, raised in _raised([f for f in ours if f.key in statuses], errors):
            attempt, status = claimed.claim.attempt, str(statuses[claimed.key])
            event_facts(self._facts, claimed.claim).event_failed(attempt=attempt, status=status, **raised)
        self._log_lost([f for f in ours if f.key not in statuses], errors, REFUSED)

    def _failure(self, claimed: ClaimedEvent, error: BaseException) -> Failure:
        delay_s = self._worker.outbox_settings.backoff.delay_s(claimed.claim.attempt, self._rng)
        may_retry = claimed.is_shared or not isinstance(error, Reject)  # which of several it rejects, nobody knows
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
        """Created to completed: by the store's clock until the last renewal, by ours since."""
        claim = claimed.claim
        if claim.created_at is None or claim.locked_until is None:
            return 0.0
        held_s = (claim.locked_until - claim.created_at).total_seconds() - self._worker.outbox_settings.lease_s
        return max(0.0, held_s + self._clock.now_s() - claimed.renewed_s)


def _raised(
    claimed_events: list[ClaimedEvent], errors: Errors, shown: set[Call] | None = None
) -> Iterator[tuple[ClaimedEvent, dict[str, Any]]]:
    """Each with the error of its handler, if there is one; a traceback once for all events of one call.

    A cancellation that the worker itself asked for is no error of the handler. `shown`: calls told of before.
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
