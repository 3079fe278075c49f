"""What came of each event a worker handled, until the store has taken it: nothing is recorded that is not ours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, EventPort, Failure, Key
from fencehold.runtime.core.heartbeat import TOO_LATE, TOO_LONG
from fencehold.runtime.handlers.error_text import described, from_the_handler, in_full, stored
from fencehold.runtime.handlers.handlers import Reject
from fencehold.runtime.outbox.claimed_event import Flight, Teller

REFUSED = "refused"  # by the store
UNCONFIRMED = "unconfirmed"  # the worker was over before the store had taken the result

Call = asyncio.Task[None] | None
Errors = Mapping[Flight, BaseException]


class Ledger:
    def __init__(
        self,
        settings: Callable[[], OutboxSettings],
        max_processing_s: Callable[[], float],
        handler_name: Callable[[Claim], str],
        *,
        clock: Clock,
        tell: Teller,
    ) -> None:
        self._settings = settings
        self._max_processing_s = max_processing_s
        self._handler_name = handler_name
        self._clock = clock
        self._tell = tell
        self._rng = random.Random()
        self._completed: list[Flight] = []
        self._failed: list[tuple[Flight, BaseException]] = []
        self._called_off: list[Flight] = []
        self._strays_shown: set[Call] = set()
        self._is_closed = False

    @property
    def has_news(self) -> bool:
        return bool(self._completed or self._failed or self._called_off)

    def ended(self, flight: Flight, error: BaseException | None) -> None:
        if flight.lost == TOO_LONG:
            self._tell.event("event_aborted", flight.claim, reason=flight.lost)
            error = self._too_long(error)
        if self._is_closed:
            self._tell_lost([flight], {} if error is None else {flight: error}, UNCONFIRMED)
        elif error is None:
            self._completed.append(flight)
        elif isinstance(error, asyncio.CancelledError) and flight.called_off and not flight.lost:
            self._called_off.append(flight)
        else:
            self._failed.append((flight, error))

    def _too_long(self, ended: BaseException | None) -> TimeoutError:
        """Caused by how it ended: as a rule by its cancellation, whose traceback says where it was by then."""
        error = TimeoutError(f"aborted: the handler took longer than max_processing ({self._max_processing_s():g} s)")
        error.__cause__ = ended and from_the_handler(ended)
        return error

    def take_completed(self) -> list[Flight]:
        completed, self._completed = self._ours(self._completed), []
        return completed

    def put_back(self, completed: list[Flight]) -> None:
        """Perhaps recorded, perhaps not: asked again, never forgotten."""
        self._completed = completed + self._completed

    def _ours(self, ended: list[Flight], errors: Errors | None = None) -> list[Flight]:
        """Those whose result may be recorded; of the others it is told, and the reaper has their events."""
        now_s = self._clock.now_s()
        ours = [flight for flight in ended if not flight.lost and now_s < flight.deadline_s]
        if len(ours) < len(ended):
            self._tell_lost([f for f in ended if f.lost or now_s >= f.deadline_s], errors or {})
        return ours

    def _tell_lost(self, flights: list[Flight], errors: Errors, reason: str = "") -> None:
        """With what the handler raised: nothing else will say it."""
        for flight, raised in _raised(flights, errors):
            self._tell.event("event_lost", flight.claim, reason=reason or flight.lost or TOO_LATE, **raised)

    def stray_ended(self, flight: Flight, error: BaseException | None) -> None:
        """A handler that ran on without a place has come to its end; its event was accounted for when it was lost."""
        [(_, raised)] = _raised([flight], {} if error is None else {flight: error}, self._strays_shown)
        self._strays_shown = {flight.task}
        age_s = round(self._clock.now_s() - flight.started_s, 1)
        handler = self._handler_name(flight.claim)
        self._tell.event("handler_ended_late", flight.claim, handler=handler, age_s=age_s, **raised)

    def close(self) -> None:
        """Nothing is recorded any more: what was not, and what ends from now on, is told and left to the reaper."""
        self._is_closed = True
        errors = dict(self._failed)
        self._tell_lost([*self._completed, *errors, *self._called_off], errors, UNCONFIRMED)
        self._completed, self._failed, self._called_off = [], [], []

    async def hand_back(self, port: EventPort) -> None:
        """What a stopping worker called off: due again at once, and no try, or a deploy could bury an event."""
        if not self._called_off:
            return
        ours, self._called_off = self._ours(self._called_off), []
        try:
            given_back = await port.release([f.claim.key for f in ours], self._settings().call_limit_s) if ours else []
        except BaseException:
            self._called_off = ours + self._called_off
            raise
        self._tell("events_handed_back", count=len(given_back))

    async def record_failures(self, port: EventPort) -> None:
        if not self._failed:
            return
        failed, self._failed = self._failed, []
        errors = dict(failed)
        ours = [f for f in errors if f.lost == TOO_LONG]
        ours += self._ours([f for f in errors if f.lost != TOO_LONG], errors)
        failures = [self._failure(flight, errors[flight]) for flight in ours]
        try:
            recorded = await port.fail(failures, self._settings().call_limit_s) if ours else []
        except BaseException:
            self._failed = [(f, errors[f]) for f in ours] + self._failed
            raise
        statuses = dict(recorded)
        for flight, raised in _raised([f for f in ours if f.key in statuses], errors):
            about = {"attempt": flight.claim.attempt, "status": str(statuses[flight.key])}
            self._tell.event("event_failed", flight.claim, **about, **raised)
        self._tell_lost([f for f in ours if f.key not in statuses], errors, REFUSED)

    def _failure(self, flight: Flight, error: BaseException) -> Failure:
        delay_s = self._settings().backoff.delay_s(flight.claim.attempt, self._rng)
        may_retry = flight.is_shared or not isinstance(error, Reject)  # which of several it rejects, nobody knows
        return Failure(flight.claim.key, stored(error), delay_s, may_retry)

    def tell_completed(self, asked: list[Flight], accepted: Sequence[Key]) -> None:
        refused = len(asked) - len(accepted)
        if refused:
            known = {(key.id, key.token) for key in accepted}
            for flight in [f for f in asked if (f.claim.id, f.claim.token) not in known]:
                self._tell.event("event_lost", flight.claim, reason=REFUSED)
        latencies_s = [self._latency_s(f) for f in asked] if self._tell.wants_latencies else None
        self._tell("events_completed", completed=len(accepted), refused=refused, latencies_s=latencies_s)

    def _latency_s(self, flight: Flight) -> float:
        """Created to completed: by the store's clock until the last renewal, by ours since."""
        claim = flight.claim
        if claim.created_at is None or claim.locked_until is None:
            return 0.0
        held_s = (claim.locked_until - claim.created_at).total_seconds() - self._settings().lease_s
        return max(0.0, held_s + self._clock.now_s() - flight.renewed_s)


def _raised(
    flights: list[Flight], errors: Errors, shown: set[Call] | None = None
) -> Iterator[tuple[Flight, dict[str, Any]]]:
    """Each with the error of its handler, if there is one; a traceback once for all events of one call.

    A cancellation that the worker itself asked for is no error of the handler. `shown`: calls told of before.
    """
    shown = set(shown or ())
    for flight in flights:
        error = errors.get(flight)
        if error is None or (isinstance(error, asyncio.CancelledError) and (flight.lost or flight.called_off)):
            yield flight, {}
            continue
        traceback = None if flight.task in shown else in_full(error) or None
        shown.add(flight.task)
        yield flight, {"error": described(error), "traceback": traceback}
