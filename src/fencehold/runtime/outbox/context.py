"""What all outboxes of one store share: connections, the tables made at first use, and the workers that run."""

from __future__ import annotations

import random

from fencehold.ports.backend import events_of
from fencehold.ports.events import Events
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.handler_loop import HandlerLoop
from fencehold.runtime.first_use import FirstUse
from fencehold.runtime.outbox.shared_connections import SharedEvents


class RunningWorker(HandlerLoop):
    outbox: str

    def _reconfigured(self) -> None:
        """Called when the outbox's lease was changed: the next heartbeat may be due sooner."""


class OutboxContext:
    def __init__(self, store: StoreContext, first_use: FirstUse) -> None:
        self.store, self.first_use = store, first_use
        self.rng = random.Random()
        self.workers: set[RunningWorker] = set()
        self.shared = SharedEvents(self.make_events)
        self._in_callers: dict[str, Events] = {}

    def make_events(self, outbox: str) -> Events:
        """For one event loop, on a connection of its own that opens when needed; whoever asked closes it."""
        return events_of(self.store.backend, outbox)

    def in_callers_transaction(self, outbox: str) -> Events:
        """For statements on connections of the caller's only: it never opens a connection of its own."""
        if outbox not in self._in_callers:
            self._in_callers[outbox] = self.make_events(outbox)
        return self._in_callers[outbox]
