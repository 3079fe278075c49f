"""Locks: step-downs, sessions that the server ends and locks that it frees, besides what befalls every kind."""

from __future__ import annotations

from collections.abc import Sequence

from fencehold.model.election.election import TABLE
from fencehold.model.election.retry import ExponentialBackoff, FixedInterval, RetryStrategy
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S, Timing
from fencehold.runtime.lock.session_lock import LockSettings
from fencehold.testing.simulation.locks.node import LOOK_S, LockNode
from fencehold.testing.simulation.locks.referee import ACQUIRED, LockReferee
from fencehold.testing.simulation.locks.server import LockServer
from fencehold.testing.simulation.network import HANG_UP_S_MAX
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble

HEALTH_PART = 0.2  # of what other kinds have as a lease: for so long a proof counts
RETRY_S_MAX = 2.0


class LockSchedule(Schedule):
    rules = frozenset(f"{row.source.value} -> {row.target.value}" for row in TABLE if row.source is not row.target)
    settles_s = ROUND_TRIP_LIMIT_S
    referee: LockReferee
    nodes: Sequence[LockNode]

    def __init__(self, seed: int, trace: bool) -> None:
        super().__init__(seed, trace)
        self.timing = Timing(self.lease_s * HEALTH_PART)
        self.referee = LockReferee(self.loop, self.trace, self.timing)
        self.rules_fired = self.referee.changes
        self.server = self.referee.server = LockServer(self.loop, self.referee)
        silent_s_max = self.timing.trust_s if self.draw() < 0.8 else None
        has_epoch = self.draw() < 0.6
        self.nodes = [
            LockNode(
                name, self.line(), self.server, self._some_settings(), silent_s_max, has_epoch, self.referee, self.rng
            )
            for name in NODES
        ]

    def _some_settings(self) -> LockSettings:
        draw = self.draw
        retry: RetryStrategy = (
            FixedInterval(RETRY_S_MAX * draw()) if draw() < 0.5 else ExponentialBackoff(0.2, RETRY_S_MAX)
        )
        grace_s = self.lease_s * (0.3 + 1.5 * draw()) if draw() < 0.7 else None
        return LockSettings(self.timing, retry, grace_s, auto_reacquire=draw() < 0.8, shutdown_event=None)

    def restart_store(self) -> None:
        self.server.restart()

    def troubles(self) -> tuple[Trouble, ...]:
        return (
            (0.20, self.pauses), (0.15, self.blocks), (0.20, self.gets_no_answers), (0.06, self.store_restarts),
            (0.10, self._steps_down), (0.10, self.restarts), (0.05, self._session_is_ended),
            (0.05, self._lock_is_freed),
        )  # fmt: skip

    def target(self) -> LockNode:
        leader = next((node for node in self.nodes if node.lock.is_leader), None)
        return leader if leader is not None and self.draw() < 0.6 else self.rng.choice(self.nodes)

    async def judge_calm(self) -> None:
        limit_s = max(self.timing.trust_s, HANG_UP_S_MAX, self.timing.seize_limit_s) + RETRY_S_MAX + LOOK_S
        limit_s += LIVENESS_SLACK_S
        await self.wait_for(lambda: any(node.lock.is_leader for node in self.nodes), limit_s, "nobody leads")

    def judge_left(self) -> None:
        self.referee.must(self.server.holder is None, "a session still has the lock")
        for node in self.nodes:
            terms, told = self.referee.terms.get(node.name, 0), self.referee.told.get(node.name, []).count(ACQUIRED)
            self.referee.must(terms == told, f"{node.name} led {terms} terms, and its callbacks tell of {told}")

    # --- troubles ---

    def _steps_down(self) -> None:
        node = self.target()
        node.user.begin(node.step_down())

    def _session_is_ended(self) -> None:
        if self.server.holder is not None:
            self.trace.note("server", "the operator ends the leader's session")
            self.server.take_away(self.server.holder, ends=True)

    def _lock_is_freed(self) -> None:
        if self.server.holder is not None:
            self.trace.note("server", "the operator frees the lock, and its session lives on")
            self.server.take_away(self.server.holder, ends=False)
