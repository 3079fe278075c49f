"""The schedule for locks: processes with our own SessionLock on simulated sessions, their fenced writes and troubles.

Besides the troubles of every kind there are step-downs, sessions that the server ends and locks that it frees.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fencehold.model.election.election import TABLE, LockState
from fencehold.model.election.retry import ExponentialBackoff, FixedInterval, RetryStrategy
from fencehold.model.errors import LeaseLost, Unavailable, Uncertain
from fencehold.runtime.core.callbacks import DRAIN_LIMIT_S
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S, Timing
from fencehold.runtime.lock.session_lock import LockSettings, SessionLock
from fencehold.testing.simulation.locks.referee import ACQUIRED, LOST, RELEASED, STOPPED, Contender, LockReferee
from fencehold.testing.simulation.locks.server import CompanionOverLine, LockServer, SessionOverLine
from fencehold.testing.simulation.network import HANG_UP_S_MAX, STUTTER_S_MAX, Line
from fencehold.testing.simulation.process import NodeClock, Process
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble

LOOK_S = 2.0
HEALTH_PART = 0.2  # so long does a proof that the lock is held count, as a part of the lease of other kinds
RETRY_S_MAX = 2.0


class SimulatedLock(SessionLock[SessionOverLine]):
    def __init__(
        self, settings: LockSettings, node: Process, open_session: Callable[[], SessionOverLine],
        companion: CompanionOverLine | None,
    ) -> None:  # fmt: skip
        super().__init__("lock", settings, node, companion=companion)
        self._clock: NodeClock = node.clock
        self._open_session = open_session

    async def _open(self) -> SessionOverLine:
        session = self._open_session()
        await session.connect()
        return session

    def _where(self) -> str:
        return "the simulated server"


class LockNode(Contender):
    """A simulated process with a session lock.

    `silent_s_max`: how long its sessions may be silent before the server ends them; None: the server never does that.
    """

    def __init__(
        self, name: str, line: Line, server: LockServer, settings: LockSettings, silent_s_max: float | None,
        has_epoch: bool, referee: LockReferee, rng: random.Random,
    ) -> None:  # fmt: skip
        super().__init__(name, line, referee, rng)
        self._referee, self._health_s = referee, settings.timing.health_interval_s
        companion = CompanionOverLine(server, line, name) if has_epoch else None
        self.lock = SimulatedLock(settings, self, lambda: SessionOverLine(line, server, silent_s_max), companion)
        for what, call_at in (
            (ACQUIRED, self.lock.on_acquired), (LOST, self.lock.on_lost), (RELEASED, self.lock.on_released),
            (STOPPED, self.lock.on_stopped),
        ):  # fmt: skip
            call_at(partial(referee.tell, self, what))
        self._work: asyncio.Task[None]
        referee.nodes[name] = self

    def heard(self, event: str, fields: dict[str, Any]) -> None:
        if event == "state_change":
            self._referee.changes.add(f"{fields['old']} -> {fields['new']}")
        elif event in {"lock_acquired", "leadership_recovered"}:
            self._referee.leads(self, fields["epoch"], is_resumed=event == "leadership_recovered")

    # --- life ---

    async def start(self) -> None:
        await self.lock.start()
        self._work = asyncio.create_task(self._working(), name=f"{self.name}-work")

    async def stop(self) -> None:
        self._work.cancel()
        await asyncio.wait([self._work])
        timeout_s = self.some_timeout_s(2.0)
        self._trace.note(self.name, f"shuts down, timeout {timeout_s}")
        limit_s = self._own_s(timeout_s) + ROUND_TRIP_LIMIT_S + DRAIN_LIMIT_S
        await self.within(limit_s, "shutdown", self.lock.shutdown(timeout_s))

    async def step_down(self) -> None:
        timeout_s = self.some_timeout_s(1.0)
        self._trace.note(self.name, f"steps down, timeout {timeout_s}")
        await self.within(self._own_s(timeout_s), "step_down", self.lock.step_down(timeout_s))

    def _own_s(self, timeout_s: float | None) -> float:
        return self._health_s + ROUND_TRIP_LIMIT_S + STUTTER_S_MAX if timeout_s is None else timeout_s

    # --- work ---

    async def _working(self) -> None:
        """Write whenever this process leads, for ever. Start the lock again when it has stopped by itself."""
        while True:
            if self.lock.state is LockState.STOPPED:
                await asyncio.sleep(self._draw())
                await self.lock.start()
            if await self.lock.wait_for_leadership(LOOK_S):
                await asyncio.sleep(self._draw())
                await self._write()

    async def _write(self) -> None:
        term = self.lock.term
        if term is None:
            return
        try:
            async with term.transaction() as tx:
                await self.pause_point()
                await tx.execute(lambda: None)
        except (LeaseLost, Unavailable, Uncertain):
            return


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
