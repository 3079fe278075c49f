"""One process of the simulation: our own Leader, KeeperServices and Term, and a user whose work is fenced writes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from fencehold.model.election.retry import FixedInterval, RetryStrategy
from fencehold.model.election.settings import LeaderSettings
from fencehold.model.errors import LeaseLost, Unavailable, Uncertain
from fencehold.runtime.context import StoreContext
from fencehold.runtime.core.shared_limit import DRAIN_LIMIT_S
from fencehold.runtime.election.candidates import Candidates
from fencehold.runtime.election.keeper_services import KeeperServices
from fencehold.runtime.election.leader import Leader
from fencehold.runtime.election.term import Term
from fencehold.telemetry.traces import NoTraces
from fencehold.testing.simulation.loop import NodeClock, NodeHost, Side, SimulationLoop
from fencehold.testing.simulation.network import BackendOverLine, Line
from fencehold.testing.simulation.referee import BODY_STOP_S_MAX, SLACK_S, Referee, Trace
from fencehold.testing.simulation.store import LEASE_NAME

OPEN_LIMIT_S = 5.0
PAUSE_BEFORE_WRITE = 0.04
NEVER_S = -1.0


class Node:
    """Runs unchanged product code; only time, threads and the network are not real."""

    def __init__(
        self,
        name: str,
        loop: SimulationLoop,
        line: Line,
        referee: Referee,
        settings: LeaderSettings,
        rng: random.Random,
        trace: Trace,
    ) -> None:
        self.name = name
        self.settings = settings
        self.keeper, self.user = Side(loop, f"{name}.keeper"), Side(loop, f"{name}.user")
        self.keeper.user = self.user
        self.clock = NodeClock(loop, 0.99 + 0.02 * rng.random(), rng.random() * 10_000)
        self.bodies: dict[int, int] = {}
        self.blocked_at_s: float | None = None
        self.disturbed_s = NEVER_S
        self.line = line
        line.node = self
        self._loop, self._referee, self._trace = loop, referee, trace
        self._rng, self._draw = rng, rng.random
        self._host = NodeHost(loop, self.keeper, self.user)
        self._context = StoreContext(lambda: BackendOverLine(self.line), self.clock, self, NoTraces(), label=name)
        self._leader: Leader | None = None
        self._work: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # no start and no restart is under way

    def disturb(self, for_s: float = 0.0) -> None:
        """Record that something disturbs the way between this process and the store, now or for `for_s`."""
        self.disturbed_s = max(self.disturbed_s, self._loop.time() + for_s)

    # --- life, on the user's thread ---

    async def open(self) -> None:
        self._context.opened(await self._host.begin(self._open()), self._host)
        await self.start()
        self._settled.set()

    async def _open(self) -> KeeperServices:
        keeper = KeeperServices(self._context.make_backend(), self.clock, self._context.facts)
        await keeper.open(OPEN_LIMIT_S)
        return keeper

    async def start(self) -> None:
        if self._leader is None or self._draw() < 0.5:
            self._leader = self._candidate()
        self.line.next_ask()  # an earlier request was another leader's: this one need not find its grant
        await self._leader.start()
        self._work = asyncio.create_task(self._working(self._leader), name=f"{self.name}-work")

    def _candidate(self) -> Leader:
        patient = self._draw() < 0.8
        strategy: RetryStrategy | None = None if patient else FixedInterval(self.settings.acquire_every_s)
        return Leader(
            LEASE_NAME, self.name, self.settings, self._context, candidates=Candidates(), retry_strategy=strategy,
            rng=self._rng,
        )  # fmt: skip

    async def restart(self) -> None:
        """Shut down, stay away for a while, come back; one at a time."""
        if not self._settled.is_set():
            return
        self._settled.clear()
        try:
            await self.stop(None if self._draw() < 0.5 else self._draw() * 2)
            await asyncio.sleep(self._draw() * 2)
            await self.start()
        finally:
            self._settled.set()

    async def stop(self, timeout_s: float | None) -> None:
        """Shut down. That must end within its limit, whatever the store does."""
        assert self._leader is not None, "started first"
        self.line.next_ask()
        self.disturb()
        self._trace.note(self.name, f"shuts down, timeout {timeout_s}")
        settings = self.settings
        own_s = BODY_STOP_S_MAX + settings.call_limit_s if timeout_s is None else timeout_s
        await self._within(own_s + DRAIN_LIMIT_S, "shutdown", self._leader.shutdown(timeout_s))
        if self._work is not None:
            # A stopped leader's terms() ends by itself once the last body has left.
            await self._within(BODY_STOP_S_MAX, "the loop over terms()", self._work)

    async def step_down(self) -> None:
        if self._leader is None or not self._leader.is_leader:
            return
        timeout_s = None if self._draw() < 0.6 else self._draw()
        self._trace.note(self.name, f"steps down, timeout {timeout_s}")
        own_s = BODY_STOP_S_MAX + self.settings.call_limit_s if timeout_s is None else timeout_s
        await self._within(own_s, "step_down", self._leader.step_down(timeout_s))

    async def close(self) -> None:
        """End the run: give everything back and leave no task."""
        await self._settled.wait()
        await self.stop(None)
        await self._within(self.settings.call_limit_s, "close", self._host.begin(self._context.keeper.close()))

    async def _within(self, limit_s: float, what: str, work: Any) -> None:
        since_s = self.user.running_s()
        task = asyncio.ensure_future(work)
        while not task.done():
            left_s = limit_s + 3 * SLACK_S - (self.user.running_s() - since_s)
            if left_s <= 0:
                self._referee.fail(f"{self.name}: {what} did not end within {limit_s:.2f} s")
                return
            await asyncio.wait([task], timeout=left_s)
        task.result()

    # --- work, on the user's thread ---

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
                    await self._pause_point()
                    await tx.execute("write")
            else:
                guard = term.guard()
                await self._pause_point()
                fences = self._context.keeper.backend.fences
                guard.check(await fences.write_guarded(guard.params["key"]))  # type: ignore[attr-defined]
        except LeaseLost:
            if term.is_valid:
                self._referee.fail(f"{self.name}: epoch {term.epoch} is valid after a refused write")
            raise
        except (Unavailable, Uncertain):
            return

    async def _pause_point(self) -> None:
        """Sometimes pause, between the check and the write: there a pause does the most harm."""
        if self._draw() < PAUSE_BEFORE_WRITE:
            self.line.pause()
        await asyncio.sleep(self._draw() * 0.02)

    # --- facts, on either thread ---

    def fact(self, event: str, **fields: Any) -> None:
        if event == "leader_acquired":
            term = self._leader.term if self._leader is not None else None
            if term is not None:
                self._referee.leads(self, term)
        elif event in {"internal_error", "callback_failed"}:
            self._referee.fail(f"{self.name}: {event}: {fields.get('error')}")
        if self._trace.on:
            self._trace.note(self.name, f"{event} {_shown(fields)}")


def _shown(fields: dict[str, Any]) -> str:
    """A fact's fields for a trace, without those that every fact has."""
    shown = {key: value for key, value in fields.items() if key not in {"lease_name", "holder_id", "expires_at"}}
    return " ".join(f"{key.removeprefix('lease_')}={value}" for key, value in shown.items() if value is not None)
