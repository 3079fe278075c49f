"""Events this process is working on: when each stops being ours, whatever any thread or await is doing.

They are renewed on the keeper's thread, so a handler that blocks its event loop keeps its event.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from fencehold.model.errors import FenceholdError
from fencehold.model.outbox.settings import HEARTBEAT_PART, OutboxSettings, WorkerSettings
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, ClaimKey, EventPort
from fencehold.ports.fact_table import WorkerFacts
from fencehold.runtime.core.renewals import Heartbeats, Kept

UNPROVEN = "heartbeat_failed"


class ClaimedEvent(Kept):
    """One claimed event from the claim to the end of its handler."""

    __slots__ = ("called_off", "claim", "hung_logged", "is_shared", "task", "warned_s")

    def __init__(self, claim: Claim, clock: Clock, sent_s: float, trusted_s: float) -> None:
        super().__init__(clock, sent_s, trusted_s)
        self.claim = claim
        self.is_shared = False  # one call of the handler for it and for others
        self.called_off = False  # cancelled for the worker's sake, or that of another of its list: no fault of its own
        self.task: asyncio.Task[None] | None = None
        self.warned_s = 0.0  # the age at which a warning last told of it
        self.hung_logged = False  # a warning told that it runs on after its lease was lost

    @property
    def key(self) -> ClaimKey:
        return self.claim.key


class EventHolder(Protocol):
    """A worker, as the renewals of its events see it."""

    @property
    def settings(self) -> WorkerSettings: ...
    @property
    def outbox_settings(self) -> OutboxSettings: ...
    @property
    def claimed_events(self) -> dict[int, ClaimedEvent]: ...
    @property
    def facts(self) -> WorkerFacts: ...

    def lost(self, claimed: ClaimedEvent) -> None:
        """Called on the keeper's thread when the lease of this event is over."""
        ...


class EventRenewals(Heartbeats[ClaimedEvent]):
    """If the store does not answer, the events that were due are lost at once, not at their deadlines."""

    def __init__(self, worker: EventHolder, port: EventPort, clock: Clock) -> None:
        super().__init__(worker.claimed_events, clock)
        self._worker, self._port = worker, port

    def _every_s(self, kept: ClaimedEvent) -> float:
        """By the lease it was granted: the setting may have changed since."""
        lease_part_s = HEARTBEAT_PART * (kept.deadline_s - kept.renewed_s)
        return min(self._worker.outbox_settings.heartbeat_every_s, lease_part_s)

    def _due_s(self, kept: ClaimedEvent) -> float:
        return kept.renewed_s + self._every_s(kept)

    def _look_every_s(self) -> float:
        """Often enough for every event that was claimed meanwhile: claims do not wake this thread."""
        return min(self._worker.outbox_settings.heartbeat_every_s / 2, self._worker.settings.max_processing_s / 4)

    def _max_s(self, kept: ClaimedEvent) -> float:
        return self._worker.settings.max_processing_s

    async def _ask(self, due: Sequence[ClaimedEvent]) -> Sequence[tuple[dt.datetime, float] | None]:
        settings = self._worker.outbox_settings
        renewed = await self._port.renew([kept.key for kept in due], settings.lease_s, settings.call_limit_s)
        untils = (renewed.get(kept.key) for kept in due)
        return [None if until is None else (until, settings.trusted_s) for until in untils]

    def _record(self, kept: ClaimedEvent, answer: tuple[dt.datetime, float], sent_s: float) -> bool:
        until, trusted_s = answer
        kept.claim.locked_until = until
        return kept.extend(sent_s, trusted_s)

    def _log_heartbeat(self, sent: int, refused: int) -> None:
        self._worker.facts.worker_heartbeat(sent=sent, refused=refused)

    def _unanswered(self, due: Sequence[ClaimedEvent], error: FenceholdError) -> None:
        self._worker.facts.worker_heartbeat_failed(held=len(due), sql_error=str(error))
        for kept in due:
            self._lose(kept, UNPROVEN)

    def _lost(self, kept: ClaimedEvent) -> None:
        self._worker.lost(kept)
