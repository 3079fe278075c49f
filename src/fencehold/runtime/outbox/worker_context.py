"""What the parts of one worker share: its outbox, its handlers, its settings as they are now, and its facts."""

from __future__ import annotations

import asyncio

from fencehold.model.outbox.settings import OutboxSettings, WorkerSettings
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim
from fencehold.ports.fact_table import EventFacts, WorkerFacts
from fencehold.runtime.handlers.handlers import Handlers
from fencehold.runtime.outbox.access import OutboxAccess
from fencehold.runtime.outbox.claimed_event import ClaimedEvent


class WorkerContext:
    """`claimed_events` are in hand, by identity: an event that was lost and claimed again may be there twice. `strays`
    were lost, and their handlers run on without a place.
    """

    def __init__(self, outbox: OutboxAccess, worker_id: str, handlers: Handlers, settings: WorkerSettings) -> None:
        self.outbox, self.worker_id, self.handlers = outbox, worker_id, handlers
        self.facts = WorkerFacts(outbox.facts.sink, outbox=outbox.name, worker_id=worker_id)
        self.wake = asyncio.Event()  # set when a handler has ended
        self.claimed_events: dict[int, ClaimedEvent] = {}
        self.strays: dict[int, ClaimedEvent] = {}
        self._settings = settings

    @property
    def settings(self) -> WorkerSettings:
        """As they are now: what was not set by hand follows the lease, also when `Outbox.configure` changes it."""
        self._settings = self._settings.with_lease(self.outbox_settings.lease_s)
        return self._settings

    @property
    def outbox_settings(self) -> OutboxSettings:
        return self.outbox.settings

    def handler_name(self, claim: Claim) -> str:
        return self.handlers.name(claim)

    @property
    def clock(self) -> Clock:
        return self.outbox.clock


def event_facts(facts: WorkerFacts, claim: Claim) -> EventFacts:
    """Facts about one event in this worker's hand."""
    about = {"id": claim.id, "tracking_id": claim.tracking_id, "event_type": claim.event_type}
    return EventFacts(facts.sink, **facts.about(), **about)
