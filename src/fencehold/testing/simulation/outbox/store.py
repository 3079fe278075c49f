"""The outbox's store: the memory backend's events, with the referee beside every change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from fencehold.backends.memory.outbox.shelf import EventShelf, Kept
from fencehold.model.outbox.events import Request, Status, Verb
from fencehold.model.outbox.new_events import NewEvent
from fencehold.testing.simulation.outbox.referee import OutboxReferee


class JudgedEvents(EventShelf):
    def __init__(self, now: Callable[[], dt.datetime], referee: OutboxReferee) -> None:
        super().__init__(now)
        self._referee = referee

    def add(self, event: NewEvent) -> bool:
        is_new = super().add(event)
        if is_new:
            self._referee.added(self.by_tracking_id[event.tracking_id])
        return is_new

    def apply(self, event_id: int, verb: Verb, request: Request) -> Kept | None:
        row = super().apply(event_id, verb, request)
        if row is not None:
            self._referee.executed(row, verb, request)
        return row

    def lapse_early(self) -> None:
        """End the lease of the event that was claimed first, although its worker did nothing wrong."""
        held = [row for row in self.unfinished.values() if row.stored.status is Status.PROCESSING]
        for row in held[:1]:
            row.stored = replace(row.stored, locked_until=self.now())
            self._referee.lapsed_early(row)
