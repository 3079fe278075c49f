"""What outboxes and their workers share: all outboxes of one store, then one outbox, then one worker of it."""

from __future__ import annotations

import asyncio
import hashlib
import random
from abc import abstractmethod

from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import FenceholdError, Unavailable, WorkerStuck
from fencehold.model.names import LEASE_NAME_CHARS_MAX
from fencehold.model.outbox.settings import OutboxSettings, WorkerSettings
from fencehold.ports.backend import events_of
from fencehold.ports.clock import Clock
from fencehold.ports.events import Claim, ClaimKey, Events, Filter
from fencehold.ports.fact_table import EventFacts, OutboxFacts, WorkerFacts
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.handler_loop import HandlerLoop
from fencehold.runtime.core.renewals import Kept
from fencehold.runtime.election.leader import Candidates, Leader
from fencehold.runtime.handlers.handlers import Handlers
from fencehold.runtime.outbox.shared_connections import SharedEvents

#: No event has this tracking id: the statement only looks into an index, however large the table is.
NOBODYS = Filter(tracking_ids=("00000000-0000-0000-0000-000000000000",))


class RunningWorker(HandlerLoop):
    """What the outbox of a worker, and the parts on the keeper's thread, need of that worker."""

    outbox: str

    @abstractmethod
    def _reconfigured(self) -> None:
        """Look at the heartbeats again, because the outbox's lease was changed: the next may be due sooner."""

    @abstractmethod
    def _lost(self, claimed: ClaimedEvent) -> None:
        """Stop the handler of an event whose lease is lost. Called on the keeper's thread."""

    @abstractmethod
    def _give_up(self, error: WorkerStuck) -> None:
        """Make `run` raise this error, because nothing can be handled any more. Called on the keeper's thread."""


class OutboxContext:
    """What all outboxes of one store share: their connections, and the workers that run."""

    def __init__(self, store: StoreContext) -> None:
        self.store = store
        self.rng = random.Random()
        self.workers: set[RunningWorker] = set()
        self.shared = SharedEvents(store)
        self._in_callers: dict[str, Events] = {}

    def in_callers_transaction(self, outbox: str) -> Events:
        """Return the outbox for statements on a caller's connection only: it opens no connection of its own."""
        if outbox not in self._in_callers:
            self._in_callers[outbox] = events_of(self.store.backend, outbox)
        return self._in_callers[outbox]


class OutboxAccess:
    """What the workers and reapers of one outbox need of it.

    `settings` are the current ones: `Outbox.configure` changes them while workers run.
    """

    def __init__(self, name: str, settings: OutboxSettings, context: OutboxContext) -> None:
        self.name, self.settings, self.context = name, settings, context
        self.clock = context.store.clock
        self.facts = OutboxFacts(context.store.facts.sink, outbox=name)

    def make_events(self) -> Events:
        """Return this outbox for one event loop, on a connection of its own that opens when needed.

        The caller closes it.
        """
        return events_of(self.context.store.backend, self.name)

    async def probe(self, events: Events | None, is_stopping: bool, failure: FenceholdError | None) -> None:
        """Ask the store whether it answers and has the outbox's table. Raises the error that it finds.

        `events`: the connection of the work; None before the work has begun. `failure`: the error of the last try at
        the work, which is raised too, because this request only reads and the work must write.
        """
        if is_stopping:
            raise Unavailable("It is stopping, or has ended.", code="stopping")
        if events is None:
            raise Unavailable("It has not begun yet, or waits for the database.", code="starting")
        if failure is not None:
            raise failure.with_traceback(None)
        await events.admin.find(NOBODYS, 1, self.settings.call_limit_s)

    async def make_tables(self) -> None:
        """Make the tables at first use, if `store.init()` was called before the outbox was declared."""
        await self.context.store.first_use.outbox(self.name)

    def reaper_candidate(self, reaper_id: str, lease_s: float) -> Leader:
        """Return a candidate for the lease that makes one reaper of this outbox the active one."""
        settings = leader_settings(lease=lease_s)
        return Leader(reaper_lease(self.name), reaper_id, settings, self.context.store, candidates=Candidates())


def reaper_lease(outbox: str) -> str:
    """Return the name of the lease of this outbox's reapers.

    An outbox's name that is too long for it is cut, and a digest of the whole name makes the result unique.
    """
    name = f"{outbox} reaper"
    if len(name) <= LEASE_NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256(outbox.encode()).hexdigest()[:16]
    return f"{outbox[: LEASE_NAME_CHARS_MAX - len(digest) - 8]} {digest} reaper"


class ClaimedEvent(Kept):
    """One claimed event, from the claim to the end of its handler.

    Its lease is renewed on the keeper's thread, so it stays ours even while a handler blocks its event loop for a short
    time.
    """

    __slots__ = ("called_off", "claim", "hung_logged", "is_shared", "task", "warned_s")

    def __init__(self, claim: Claim, clock: Clock, sent_s: float, trusted_s: float) -> None:
        super().__init__(clock, sent_s, trusted_s)
        self.claim = claim
        self.is_shared = False  # one call of the handler for it and for others
        self.called_off = False  # cancelled because the worker stops or another of its list was lost: no failure
        self.task: asyncio.Task[None] | None = None
        self.warned_s = 0.0  # its age when a warning about it was last logged
        self.hung_logged = False  # a warning was logged that it runs on after its lease was lost

    @property
    def key(self) -> ClaimKey:
        return self.claim.key


class WorkerContext:
    """One worker: its outbox, its handlers, its settings, and the events that it handles now.

    `claimed_events` has the events that take one of the worker's places. Its keys are id()s, because an event that was
    lost and claimed again may be there twice. `strays` has the events whose lease was lost and whose handlers still
    run, but no longer take a place.
    """

    def __init__(self, outbox: OutboxAccess, worker_id: str, handlers: Handlers, settings: WorkerSettings) -> None:
        self.outbox, self.worker_id, self.handlers = outbox, worker_id, handlers
        self.facts = WorkerFacts(outbox.facts.sink, outbox=outbox.name, worker_id=worker_id)
        self.clock = outbox.clock
        self.wake = asyncio.Event()  # set when a handler has ended
        self.claimed_events: dict[int, ClaimedEvent] = {}
        self.strays: dict[int, ClaimedEvent] = {}
        self._settings = settings

    @property
    def settings(self) -> WorkerSettings:
        """The settings as they are now: those not set by hand follow the outbox's lease, also when it changes."""
        self._settings = self._settings.with_lease(self.outbox.settings.lease_s)
        return self._settings

    def handler_name(self, claim: Claim) -> str:
        return self.handlers.name(claim)


def event_facts(facts: WorkerFacts, claim: Claim) -> EventFacts:
    """Return the facts that can be logged of one event that this worker handles."""
    about = {"id": claim.id, "tracking_id": claim.tracking_id, "event_type": claim.event_type}
    return EventFacts(facts.sink, **facts.about(), **about)
