"""One outbox as its workers and reapers use it: its settings as they are now, its connections, its tables."""

from __future__ import annotations

import hashlib

from fencehold.model.election.settings import leader_settings
from fencehold.model.names import LEASE_NAME_CHARS_MAX
from fencehold.model.outbox.settings import OutboxSettings
from fencehold.ports.clock import Clock
from fencehold.ports.events import Events
from fencehold.ports.fact_table import OutboxFacts
from fencehold.runtime.core.keeper_thread import KeeperLoop
from fencehold.runtime.election.candidates import Candidates
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.outbox.context import OutboxContext


class OutboxAccess:
    """`settings` are as they are now: `Outbox.configure` changes them while workers run."""

    def __init__(self, name: str, settings: OutboxSettings, context: OutboxContext) -> None:
        self.name, self.settings, self.context = name, settings, context
        self.facts = OutboxFacts(context.store.facts.sink, outbox=name)

    @property
    def clock(self) -> Clock:
        return self.context.store.clock

    @property
    def keeper_loop(self) -> KeeperLoop:
        return self.context.store.keeper_loop

    def make_events(self) -> Events:
        """For one event loop, on a connection of its own that opens when needed; whoever asked closes it."""
        return self.context.make_events(self.name)

    async def make_tables(self) -> None:
        """Make the tables at first use, if `store.init()` was called before the outbox was declared."""
        await self.context.first_use.outbox(self.name)

    def reaper_candidate(self, reaper_id: str, lease_s: float) -> Leader:
        """A candidate for the lease that makes one reaper of this outbox the active one."""
        settings = leader_settings(lease=lease_s)
        return Leader(reaper_lease(self.name), reaper_id, settings, self.context.store, candidates=Candidates())


def reaper_lease(outbox: str) -> str:
    """One lease per outbox: a name too long for a lease is cut, and told apart by a digest of the whole."""
    name = f"{outbox} reaper"
    if len(name) <= LEASE_NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256(outbox.encode()).hexdigest()[:16]
    return f"{outbox[: LEASE_NAME_CHARS_MAX - len(digest) - 8]} {digest} reaper"
