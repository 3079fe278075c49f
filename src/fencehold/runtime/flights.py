"""Events this process is working on: when each stops being ours, whatever any thread or await is doing.

The heartbeat renews them all in one statement on the keeper's thread, so a handler that blocks its event loop keeps its
event. A flight is lost once and for ever: when the store refuses it, when the store cannot be asked, when its own time
is over, or when its handler has taken longer than it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fencehold.model.errors import FenceholdError
from fencehold.model.outbox_settings import HEARTBEAT_PART, OutboxSettings
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, ClaimKey, EventPort
from fencehold.ports.facts import FactSink

REFUSED, UNPROVEN, TOO_LATE, TOO_LONG = "lease_lost", "heartbeat_failed", "deadline_passed", "max_processing"
TICKS_PER_HEARTBEAT = 2
HEARTBEAT_TRIES = 2


class Flight:
    """One claimed event from the claim to the end of its handler."""

    __slots__ = ("called_off", "claim", "deadline_s", "lost", "renewed_s", "started_s", "task")

    def __init__(self, claim: Claim, sent_s: float, trusted_s: float) -> None:
        self.claim = claim
        self.started_s = self.renewed_s = sent_s
        self.deadline_s = sent_s + trusted_s
        self.lost = ""
        self.called_off = False  # cancelled because its worker stops: no fault of the event
        self.task: asyncio.Task[None] | None = None


class Heartbeat:
    """Runs on the keeper's loop; `flights` is the worker's own dict, changed by its thread and only read here."""

    def __init__(
        self,
        flights: dict[int, Flight],
        port: EventPort,
        settings: Callable[[], OutboxSettings],
        max_processing_s: float,
        *,
        clock: Clock,
        tell: Callable[..., None],
        on_lost: Callable[[Flight], None],
    ) -> None:
        self._flights = flights
        self._port = port
        self._settings = settings
        self._max_processing_s = max_processing_s
        self._clock = clock
        self._tell = tell
        self._on_lost = on_lost
        self._wake = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        while not self._closed:
            await self._clock.wait(self._wake, self._tick_s())
            self._wake.clear()
            self._end_overdue()
            due = self._due()
            if due:
                await self._renew(due)

    def nudge(self) -> None:
        """The lease has become another: the next tick may be due sooner."""
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _tick_s(self) -> float:
        soonest_s = min(map(self._beat_s, self._held()), default=self._settings().heartbeat_every_s)
        ticks_s = min(soonest_s, self._settings().heartbeat_every_s) / TICKS_PER_HEARTBEAT
        return min(ticks_s, self._max_processing_s / 4)

    def _beat_s(self, flight: Flight) -> float:
        """By the lease it has, which need not be the one the outbox is set to by now."""
        return min(self._settings().heartbeat_every_s, HEARTBEAT_PART * (flight.deadline_s - flight.renewed_s))

    def _held(self) -> list[Flight]:
        return [flight for flight in list(self._flights.values()) if not flight.lost]

    def _end_overdue(self) -> None:
        now_s = self._clock.now_s()
        for flight in self._held():
            if now_s - flight.started_s >= self._max_processing_s:
                self._lose(flight, TOO_LONG)
            elif now_s >= flight.deadline_s:
                self._lose(flight, TOO_LATE)

    def _due(self) -> list[Flight]:
        """Those last renewed half an interval ago: the next tick would be too late for them."""
        now_s = self._clock.now_s()
        return [f for f in self._held() if f.renewed_s + self._beat_s(f) / TICKS_PER_HEARTBEAT <= now_s]

    async def _renew(self, due: list[Flight]) -> None:
        settings = self._settings()
        for attempt in range(1, HEARTBEAT_TRIES + 1):
            sent_s = self._clock.now_s()
            try:
                keys = [flight.claim.key for flight in due]
                renewed = await self._port.renew(keys, settings.lease_s, settings.call_limit_s)
            except FenceholdError as error:
                if attempt == HEARTBEAT_TRIES:
                    self._tell("worker_heartbeat_failed", held=len(due), sql_error=str(error))
                    self._lose_all(due, UNPROVEN)
            else:
                self._renewed(due, renewed, sent_s, settings)
                return

    def _renewed(
        self, due: list[Flight], renewed: dict[ClaimKey, Any], sent_s: float, settings: OutboxSettings
    ) -> None:
        refused = [flight for flight in due if flight.claim.key not in renewed and self._is_flying(flight)]
        for flight in due:
            if until := renewed.get(flight.claim.key):
                flight.renewed_s = sent_s
                flight.deadline_s = sent_s + settings.lease_s - settings.margin_s
                flight.claim.locked_until = until
        self._tell("worker_heartbeat", sent=len(due), refused=len(refused))
        self._lose_all(refused, REFUSED)

    def _is_flying(self, flight: Flight) -> bool:
        """Not finished meanwhile: then the store has every right to refuse a renewal."""
        return id(flight) in self._flights

    def _lose_all(self, flights: list[Flight], reason: str) -> None:
        for flight in flights:
            self._lose(flight, reason)

    def _lose(self, flight: Flight, reason: str) -> None:
        flight.lost = flight.lost or reason
        self._on_lost(flight)


class Teller:
    """Facts of one worker, with the fields every such fact has."""

    def __init__(self, facts: FactSink, outbox: str, worker_id: str) -> None:
        self._facts = facts
        self._about = {"outbox": outbox, "worker_id": worker_id}
        self.wants_latencies = bool(getattr(facts, "wants_latencies", False))

    def __call__(self, event: str, **fields: Any) -> None:
        self._facts.fact(event, **self._about, **fields)

    def event(self, event: str, claim: Claim, **fields: Any) -> None:
        self(event, id=claim.id, tracking_id=claim.tracking_id, event_type=claim.event_type, **fields)
