"""The outbox: workers that are paused, cancelled and restarted, handlers of every kind, an operator who redrives."""

from __future__ import annotations

from collections.abc import Sequence

from fencehold.backends.memory.outbox.events import REDRIVABLE, MemoryEventAdmin
from fencehold.model.outbox.events import RULES
from fencehold.model.outbox.settings import OutboxSettings, outbox_settings
from fencehold.ports.events import Filter
from fencehold.runtime.outbox.context import reaper_lease
from fencehold.runtime.outbox.outbox import LIMIT_S
from fencehold.testing.simulation.backend import new_shelf
from fencehold.testing.simulation.network import at_once
from fencehold.testing.simulation.outbox.node import OUTBOX, QUICK_S_MAX, OutboxNode
from fencehold.testing.simulation.outbox.referee import JudgedEvents, OutboxReferee
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble

MAX_RETRIES = 3
RETRY_S_MAX = 3.0
POLL_S = 1.0


class OutboxSchedule(Schedule):
    rules = frozenset(rule.id for rule in RULES)
    settles_s = LIMIT_S
    referee: OutboxReferee
    nodes: Sequence[OutboxNode]

    def __init__(self, seed: int, trace: bool) -> None:
        super().__init__(seed, trace)
        self.settings = self._some_settings()
        self.referee = OutboxReferee(self.loop, self.trace, self.settings)
        self.shelf = new_shelf(self.loop)
        self.events = JudgedEvents(self.shelf.now, self.referee)
        self.shelf.outboxes[OUTBOX] = self.events
        self.rules_fired = self.events.fired
        self.nodes = [
            OutboxNode(name, self.line(), self.shelf, self.settings, self.referee, self.rng) for name in NODES
        ]

    def _some_settings(self) -> OutboxSettings:
        return outbox_settings(
            lease=self.lease_s, max_retries=MAX_RETRIES, retry_base=0.5, retry_cap=RETRY_S_MAX,
            in_order=self.draw() < 0.3,
        )  # fmt: skip

    def troubles(self) -> tuple[Trouble, ...]:
        return (
            (0.25, self.pauses), (0.10, self.blocks), (0.20, self.gets_no_answers), (0.06, self.store_restarts),
            (0.12, self.restarts), (0.07, lambda: self._node().cancel_run()),
            (0.05, lambda: self._node().pause_or_resume()),
            (0.05, self._redrives), (0.05, self.events.notify), (0.05, self.events.lapse_early),
        )  # fmt: skip

    # --- calm ---

    async def judge_calm(self) -> None:
        for node in self.nodes:
            node.workers[-1].resume()
        reaper_s = self.lease_s * 1.5 + 2 * self.settings.call_limit_s
        await self.wait_for(lambda: any(n.reaps_since_s is not None for n in self.nodes), reaper_s, "nobody reaps")
        slowest_s = max(node.workers[-1].settings.max_processing_s for node in self.nodes)
        tries_s = MAX_RETRIES * (RETRY_S_MAX * 1.1 + POLL_S + QUICK_S_MAX)
        turns = len([one for one in self.referee.records.values() if not one.is_final])
        queue_s = turns * (tries_s if self.settings.in_order else QUICK_S_MAX)
        limit_s = self.lease_s + self.settings.reap_every_s + slowest_s + tries_s + queue_s + LIVENESS_SLACK_S
        records = self.referee.records
        await self.wait_for(lambda: all(r.is_final for r in records.values()), limit_s, "events are unfinished")

    def judge_left(self) -> None:
        now = self.shelf.now()
        lost = [each for node in self.nodes for each in node.confirmed if each not in self.events.by_tracking_id]
        held = [row.id for row in self.events.rows.values() if row.stored.locked_until is not None]
        reaper = self.shelf.rows.get(reaper_lease(OUTBOX))
        reapers = [reaper.holder_id] if reaper is not None and reaper.expires_at > now else []
        for what, found in (
            ("events are gone", lost),
            ("events are held", held),
            ("the reaper's lease is held", reapers),
        ):
            if found:
                self.referee.fail(f"{what}: {found}")

    # --- troubles ---

    def _node(self) -> OutboxNode:
        return self.rng.choice(self.nodes)

    def _redrives(self) -> None:
        """An operator takes one dead letter, or one that failed, for mended."""
        self.trace.note("store", "the operator redrives an event")
        at_once(MemoryEventAdmin(self.events).redrive(Filter(REDRIVABLE), "mended", 1, 0.0, 0.0))
