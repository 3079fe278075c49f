"""Leases: step-downs, promotions that lose commits, false hints, and an operator, besides what befalls every kind."""

from __future__ import annotations

from collections.abc import Sequence

from fencehold.model.election.leases import RULES
from fencehold.model.election.settings import LeaderSettings, leader_settings
from fencehold.ports.wakeup import ACQUIRED, ASKED, RELEASED, UNKNOWN
from fencehold.testing.simulation.fences import LEASE_NAME
from fencehold.testing.simulation.leases.node import LeaseNode
from fencehold.testing.simulation.leases.referee import LeaseReferee
from fencehold.testing.simulation.leases.store import LeaseStore
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble

READ_LIMIT_S = 5.0  # a read that was under way when all was healed may delay the watch for so long
LOST_MAX = 16  # commits that a promotion loses at most


class LeaseSchedule(Schedule):
    rules = frozenset(rule.id for rule in RULES)
    referee: LeaseReferee
    nodes: Sequence[LeaseNode]

    def __init__(self, seed: int, trace: bool) -> None:
        super().__init__(seed, trace)
        self.referee = LeaseReferee(self.loop, self.trace)
        self.store = LeaseStore(self.loop, self.referee)
        self.rules_fired = self.store.shelf.fired
        self.settings = self._some_settings()
        self.settles_s = self.settings.call_limit_s
        self.nodes = [LeaseNode(name, self.line(), self.store, self.settings, self.referee, self.rng) for name in NODES]

    def _some_settings(self) -> LeaderSettings:
        return leader_settings(
            lease=self.lease_s,
            stall_limit=self.lease_s * (0.5 + self.draw()),
            on_error="retry" if self.draw() < 0.8 else "drop",
            release_on_stop=self.draw() < 0.85,
        )

    def restart_store(self) -> None:
        self.store.restart()

    def troubles(self) -> tuple[Trouble, ...]:
        return (
            (0.20, self.pauses), (0.13, self.blocks), (0.18, self.gets_no_answers), (0.06, self.store_restarts),
            (0.10, self._steps_down), (0.10, self.restarts), (0.10, self._hints_falsely),
            (0.05, self._is_asked_to_step_down), (0.08, self.store.take_away), (0.10, self._is_promoted),
        )  # fmt: skip

    def target(self) -> LeaseNode:
        """Mostly the holder of the row: trouble elsewhere seldom has an effect."""
        row = self.store.row
        holder = next((n for n in self.nodes if row is not None and n.name == row.holder_id), None)
        return holder if holder is not None and self.draw() < 0.6 else self.rng.choice(self.nodes)

    async def judge_calm(self) -> None:
        limit_s = max(self.lease_s, READ_LIMIT_S) + self.settings.acquire_every_s + LIVENESS_SLACK_S
        await self.wait_for(lambda: bool(self.referee.believed), limit_s, "nobody leads")

    # --- troubles ---

    def _is_promoted(self) -> None:
        """A standby takes over without the last commits: often it lacks none, sometimes many."""
        self.store.promote(lost=int(LOST_MAX * self.draw() ** 2))
        self.store_is_away()

    def _steps_down(self) -> None:
        node = self.target()
        node.user.begin(node.step_down())

    def _hints_falsely(self) -> None:
        what = self.rng.choice((ACQUIRED, RELEASED, RELEASED, RELEASED, ASKED, UNKNOWN))
        self.trace.note("store", f"gives a false hint: {what}")
        self.store.shelf.notify(what, LEASE_NAME)

    def _is_asked_to_step_down(self) -> None:
        self.trace.note("store", "the operator asks the leader to step down")
        self.store.ask_step_down()
