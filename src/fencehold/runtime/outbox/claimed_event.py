"""Events this process is working on: when each stops being ours, whatever any thread or await is doing.

Their heartbeat runs on the keeper's thread, so a handler that blocks its event loop keeps its event.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, ClaimKey, EventPort
from fencehold.ports.facts import FactSink, wants_latencies
from fencehold.runtime.core import heartbeat


class ClaimedEvent:
    """One claimed event from the claim to the end of its handler."""

    __slots__ = (
        "called_off", "claim", "deadline_s", "hung_logged", "is_shared", "lost", "renewed_s", "started_s", "task",
        "warned_s",
    )  # fmt: skip

    def __init__(self, claim: Claim, sent_s: float, trusted_s: float) -> None:
        self.claim = claim
        self.started_s = self.renewed_s = sent_s
        self.deadline_s = sent_s + trusted_s
        self.lost = ""
        self.is_shared = False  # one call of the handler for it and for others
        self.called_off = False  # cancelled for the worker's sake, or that of another of its list: no fault of its own
        self.task: asyncio.Task[None] | None = None
        self.warned_s = 0.0  # the age at which a warning last told of it
        self.hung_logged = False  # a warning told that it runs on after its lease was lost

    @property
    def key(self) -> ClaimKey:
        return self.claim.key

    def extend(self, until: dt.datetime, sent_s: float, trusted_s: float) -> bool:
        self.renewed_s = sent_s
        self.deadline_s = sent_s + trusted_s
        self.claim.locked_until = until
        return True

    def lose(self, reason: str) -> None:
        self.lost = self.lost or reason


class Heartbeat(heartbeat.Heartbeat[ClaimedEvent]):
    """`claimed_events` is the worker's own dict; an event whose renewal the store does not answer is lost at once."""

    fact, failed_fact = "worker_heartbeat", "worker_heartbeat_failed"
    gives_up = True

    def __init__(
        self,
        claimed_events: dict[int, ClaimedEvent],
        port: EventPort,
        settings: Callable[[], OutboxSettings],
        max_processing_s: Callable[[], float],
        *,
        clock: Clock,
        fact: Callable[..., None],
        on_lost: Callable[[ClaimedEvent], None],
    ) -> None:
        super().__init__(claimed_events, port.renew, settings, clock=clock, fact=fact, on_lost=on_lost)
        self._max_processing_s = max_processing_s

    def _max_s(self, kept: ClaimedEvent) -> float:
        return self._max_processing_s()

    def _tick_s_max(self) -> float:
        return self._max_processing_s() / 4


class WorkerFacts:
    """Facts of one worker, with the fields every such fact has."""

    def __init__(self, facts: FactSink, outbox: str, worker_id: str) -> None:
        self._facts = facts
        self._about = {"outbox": outbox, "worker_id": worker_id}
        self.wants_latencies = wants_latencies(facts)

    def __call__(self, event: str, **fields: Any) -> None:
        self._facts.fact(event, **self._about, **fields)

    def event(self, event: str, claim: Claim, **fields: Any) -> None:
        self(event, id=claim.id, tracking_id=claim.tracking_id, event_type=claim.event_type, **fields)
