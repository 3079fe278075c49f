"""A contender: our own SessionLock on a simulated session, and a user whose work is fenced writes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from fencehold.model.election.election import LockState
from fencehold.model.errors import LeaseLost, Unavailable, Uncertain
from fencehold.runtime.core.callbacks import DRAIN_LIMIT_S
from fencehold.runtime.lock.mechanism import ROUND_TRIP_LIMIT_S
from fencehold.runtime.lock.session_lock import LockSettings, SessionLock
from fencehold.testing.simulation.locks.referee import ACQUIRED, LOST, RELEASED, STOPPED, Contender, LockReferee
from fencehold.testing.simulation.locks.server import CompanionOverLine, LockServer, SessionOverLine
from fencehold.testing.simulation.network import STUTTER_S_MAX, Line
from fencehold.testing.simulation.process import NodeClock, Process

LOOK_S = 2.0


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
    """`silent_s_max`: of its sessions, how long the server bears their silence; None: they are plain connections."""

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
        """A lock that has stopped by itself is started again."""
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
