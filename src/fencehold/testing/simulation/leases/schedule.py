"""The schedule for leases: candidates and their users, whose work is fenced writes, and the troubles they get.

Besides the troubles of every kind there are step-downs, promotions that lose commits, false hints, and an operator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from fencehold.model.election.retry import FixedInterval, RetryStrategy
from fencehold.model.election.rules import RULES, Ask, Refusal
from fencehold.model.election.settings import LeaderSettings, leader_settings
from fencehold.model.errors import LeaseLost, Unavailable, Uncertain
from fencehold.ports.wakeup import ACQUIRED, ASKED, RELEASED, UNKNOWN
from fencehold.runtime.core.callbacks import DRAIN_LIMIT_S
from fencehold.runtime.election.leader import Candidates, Leader
from fencehold.runtime.election.term import Term
from fencehold.testing.simulation.fences import LEASE_NAME, FencesOverLine
from fencehold.testing.simulation.leases.referee import Candidate, LeaseReferee, LeaseStore
from fencehold.testing.simulation.network import BackendOverLine, Line, over_line
from fencehold.testing.simulation.referee import BODY_STOP_S_MAX
from fencehold.testing.simulation.schedule import LIVENESS_SLACK_S, NODES, Schedule, Trouble

READ_LIMIT_S = 5.0  # a read that was under way when all was healed may delay the watch for so long
LOST_MAX = 16  # commits that a promotion loses at most


class LeaseNode(Candidate):
    def __init__(
        self, name: str, line: Line, store: LeaseStore, settings: LeaderSettings, referee: LeaseReferee,
        rng: random.Random,
    ) -> None:  # fmt: skip
        super().__init__(name, line, store.shelf, settings.call_limit_s, referee, rng)
        self.settings = settings
        self.bodies: dict[int, int] = {}
        self.asked: Ask | None = None  # the newest request; the grant of an earlier one need not be found any more
        self._store, self._referee = store, referee
        self._leader: Leader | None = None
        self._work: asyncio.Task[None]
        referee.nodes[name] = self

    def backend(self) -> BackendOverLine:
        made = super().backend()
        made.leases = over_line(self._store.leases, self.line, self)
        made.fences = FencesOverLine(self._store, self.line)
        return made

    def sending(self, verb: str, args: tuple[Any, ...]) -> None:
        if verb == "acquire":
            self.asked = args[0]
        elif verb == "renew":
            self._referee.renewing(self, args[0])

    def answered(self, verb: str, args: tuple[Any, ...], answer: Any) -> None:
        if verb == "renew":
            refused = (key for key, one in zip(args[0], answer, strict=True) if isinstance(one, Refusal))
            self._referee.refused_epochs |= {key.epoch for key in refused}

    def answer_lost(self) -> None:
        if not self._referee.granted_now(self):  # the grant of that request must be found again
            self.disturb()

    # --- life ---

    async def start(self) -> None:
        if self._leader is None or self._draw() < 0.5:
            self._leader = self._candidate()
        self.asked = None
        await self._leader.start()
        self._work = asyncio.create_task(self._working(self._leader), name=f"{self.name}-work")

    def _candidate(self) -> Leader:
        patient = self._draw() < 0.8
        strategy: RetryStrategy | None = None if patient else FixedInterval(self.settings.acquire_every_s)
        return Leader(
            LEASE_NAME, self.name, self.settings, self.context, candidates=Candidates(), retry_strategy=strategy
        )

    async def stop(self) -> None:
        assert self._leader is not None, "started first"
        timeout_s = self.some_timeout_s(2.0)
        self.asked = None
        self.disturb()
        self._trace.note(self.name, f"shuts down, timeout {timeout_s}")
        await self.within(self._own_s(timeout_s) + DRAIN_LIMIT_S, "shutdown", self._leader.shutdown(timeout_s))
        # A stopped leader's terms() ends by itself once the last body has left.
        await self.within(BODY_STOP_S_MAX, "the loop over terms()", self._work)

    async def step_down(self) -> None:
        if self._leader is None or not self._leader.is_leader:
            return
        timeout_s = self.some_timeout_s(1.0)
        self._trace.note(self.name, f"steps down, timeout {timeout_s}")
        await self.within(self._own_s(timeout_s), "step_down", self._leader.step_down(timeout_s))

    def _own_s(self, timeout_s: float | None) -> float:
        return BODY_STOP_S_MAX + self.call_limit_s if timeout_s is None else timeout_s

    # --- work ---

    async def _working(self, leader: Leader) -> None:
        async for term in leader.terms():
            async with term:
                await self._body(term)

    async def _body(self, term: Term) -> None:
        self.bodies[term.epoch] = self.bodies.get(term.epoch, 0) + 1
        try:
            while True:
                await asyncio.sleep(self._draw() * 2.5)
                if term.is_valid:
                    await self._write(term)
        finally:
            try:
                if self._draw() < 0.4:
                    await asyncio.sleep(self._draw() * BODY_STOP_S_MAX)
            finally:
                self.bodies[term.epoch] -= 1

    async def _write(self, term: Term) -> None:
        try:
            if self._draw() < 0.5:
                async with term.transaction() as tx:
                    await self.pause_point()
                    await tx.execute(lambda: None)
            else:
                guard = term.guard()
                await self.pause_point()
                fences = self.context.keeper.backend.fences
                guard.check(await fences.write_guarded(guard.params["key"]))  # type: ignore[attr-defined]
        except LeaseLost:
            if term.is_valid:
                self._fail(f"{self.name}: epoch {term.epoch} is valid after a refused write")
            raise
        except (Unavailable, Uncertain):
            return

    def heard(self, event: str, fields: dict[str, Any]) -> None:
        if event == "leader_acquired":
            term = self._leader.term if self._leader is not None else None
            if term is not None:
                self._referee.leads(self, term)


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
        """Return a random process, but mostly the holder of the lease: trouble for another one seldom has an effect."""
        row = self.store.row
        holder = next((n for n in self.nodes if row is not None and n.name == row.holder_id), None)
        return holder if holder is not None and self.draw() < 0.6 else self.rng.choice(self.nodes)

    async def judge_calm(self) -> None:
        limit_s = max(self.lease_s, READ_LIMIT_S) + self.settings.acquire_every_s + LIVENESS_SLACK_S
        await self.wait_for(lambda: bool(self.referee.believed), limit_s, "nobody leads")

    # --- troubles ---

    def _is_promoted(self) -> None:
        """Promote a standby that may lack the last commits: often it lacks none, sometimes many."""
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
