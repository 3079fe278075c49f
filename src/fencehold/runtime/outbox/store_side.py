"""What an outbox needs of its store: connections, the keeper's thread, candidates for its reaper."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fencehold.model.election.settings import leader_settings
from fencehold.model.names import LEASE_NAME_CHARS_MAX
from fencehold.model.outbox.settings import WorkerSettings
from fencehold.ports.backend import Backend
from fencehold.ports.clock import Clock
from fencehold.ports.events import Events
from fencehold.ports.facts import FactSink
from fencehold.ports.traces import TracePort
from fencehold.runtime.core.keeper_thread import Host
from fencehold.runtime.election.keeper_services import KeeperServices
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.first_use import FirstUse
from fencehold.runtime.handlers.handlers import Handlers
from fencehold.runtime.outbox.reaper import Reaper
from fencehold.runtime.outbox.shared_connections import SharedEvents
from fencehold.runtime.outbox.worker import Worker
from fencehold.runtime.outbox.worker_background import WorkerBackground

if TYPE_CHECKING:
    from fencehold.runtime.outbox.outbox import Outbox


class OutboxParts:
    def __init__(
        self,
        make_backend: Callable[[], Backend],
        engine: Callable[[], tuple[KeeperServices, Host]],
        clock: Clock,
        facts: FactSink,
        traces: TracePort,
        first_use: FirstUse,
    ) -> None:
        self._make_backend = make_backend
        self._engine = engine
        self._backend: Backend | None = None
        self.clock, self.facts, self.traces, self.first_use = clock, facts, traces, first_use
        self.rng = random.Random()
        self.workers: set[Worker] = set()
        self.shared = SharedEvents(self.make_events)

    def check_open(self) -> None:
        self._engine()

    def make_events(self, outbox: str) -> Events:
        """For one event loop, on a connection of its own that opens when needed; whoever asked closes it."""
        if self._backend is None:
            self._backend = self._make_backend()
        return self._backend.events(outbox)

    def worker(
        self,
        outbox: Outbox,
        worker_id: str,
        handlers: Handlers,
        settings: WorkerSettings,
        saturated: Callable[[], bool] | None,
        with_reaper: bool,
    ) -> Worker:
        def make_events() -> Events:
            return self.make_events(outbox.name)

        def current() -> Any:
            return outbox.settings

        def make_reaper() -> Reaper:
            return self.reaper(outbox, worker_id)

        crew = WorkerBackground(
            lambda: self._engine()[1], make_events, make_reaper if with_reaper else None, current,
            make_ready=lambda: self.first_use.outbox(outbox.name), clock=self.clock, facts=self.facts,
        )  # fmt: skip
        return Worker(
            outbox.name, worker_id, handlers, settings, current, make_events=make_events, crew=crew, clock=self.clock,
            facts=self.facts, traces=self.traces, saturated=saturated, workers=self.workers,
        )  # fmt: skip

    def reaper(self, outbox: Outbox, reaper_id: str) -> Reaper:
        def make_leader(lease_s: float) -> Leader:
            return Leader(
                reaper_lease(outbox.name), reaper_id, leader_settings(lease=lease_s), retry_strategy=None,
                engine=self._engine, clock=self.clock, facts=self.facts, enrol=lambda _: None, done=lambda: None,
            )  # fmt: skip

        return Reaper(
            outbox.name, lambda: outbox.settings, make_leader=make_leader,
            make_events=lambda: self.make_events(outbox.name),
            make_ready=lambda: self.first_use.outbox(outbox.name), clock=self.clock, facts=self.facts,
        )  # fmt: skip


def reaper_lease(outbox: str) -> str:
    """One lease per outbox: a name too long for a lease is cut, and told apart by a digest of the whole."""
    name = f"{outbox} reaper"
    if len(name) <= LEASE_NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256(outbox.encode()).hexdigest()[:16]
    return f"{outbox[: LEASE_NAME_CHARS_MAX - len(digest) - 8]} {digest} reaper"
