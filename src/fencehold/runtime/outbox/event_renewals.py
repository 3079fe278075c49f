"""Renews the leases of all events that one worker has in hand, on the keeper's thread."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

from fencehold.model.errors import FenceholdError
from fencehold.model.settings import HEARTBEAT_PART
from fencehold.ports.events import EventPort
from fencehold.runtime.core.renewals import Heartbeats
from fencehold.runtime.outbox.claimed_event import ClaimedEvent
from fencehold.runtime.outbox.worker_context import WorkerContext

UNPROVEN = "heartbeat_failed"


class Told(Protocol):
    """Who is told, on the keeper's thread, that an event is lost."""

    def lost(self, claimed: ClaimedEvent) -> None: ...


class EventRenewals(Heartbeats[ClaimedEvent]):
    """If the store does not answer, the events that were due are lost at once, not at their deadlines."""

    def __init__(self, worker: WorkerContext, port: EventPort, told: Told) -> None:
        super().__init__(worker.claimed_events, worker.clock)
        self._worker, self._port, self._told = worker, port, told

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
        self._told.lost(kept)
