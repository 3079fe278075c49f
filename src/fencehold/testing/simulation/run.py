"""One schedule: three processes, a store, and the trouble of a month in a minute of virtual time, from one seed.

First trouble, then calm: once everything works again, one process must lead in time, all must shut down in time, and
nothing may be left behind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from fencehold.model.election.leases import RULES
from fencehold.model.election.settings import LeaderSettings, leader_settings
from fencehold.ports.wakeup import ACQUIRED, ASKED, RELEASED, UNKNOWN
from fencehold.testing.simulation.faults import planted
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import Line, Weather
from fencehold.testing.simulation.node import Node
from fencehold.testing.simulation.referee import Broken, Referee, Trace
from fencehold.testing.simulation.store import LEASE_NAME, SimulatedStore
from fencehold.testing.simulation.virtual_loop import Deadlock, Livelock

NODES = ("A", "B", "C")
TROUBLE_S = 30.0  # four to six leases
CALM_S = 1.0
READ_LIMIT_S = 5.0  # a read that was under way when all was healed may delay the watch for so long
SLACK_S = 3.0
LOST_MAX = 16  # commits that a promotion loses at most
RULE_IDS = frozenset(rule.id for rule in RULES)


@dataclass(frozen=True)
class Outcome:
    """The result of one schedule; the same seed and fault give the same outcome."""

    seed: int
    fault: str | None
    violation: str | None
    virtual_s: float
    led_s: float
    terms: int
    writes: int
    refusals: int
    callbacks: int
    rules_fired: frozenset[str]
    trace: tuple[str, ...] = ()


def simulate(seed: int, fault: str | None = None, trace: bool = False) -> Outcome:
    """Run the schedule of this seed to its end, or to the first invariant that does not hold."""
    with planted(fault) as fence:
        schedule = Schedule(seed, fence, trace)
        try:
            violation = schedule.run()
        finally:
            schedule.loop.close()
    referee = schedule.referee
    return Outcome(
        seed, fault, violation, schedule.loop.time(), referee.led_s, referee.terms, referee.writes, referee.refusals,
        schedule.loop.callbacks_run, RULE_IDS & set(schedule.store.shelf.fired), tuple(schedule.trace.lines),
    )  # fmt: skip


class Schedule:
    def __init__(self, seed: int, fence: str, trace: bool) -> None:
        self.loop = SimulationLoop(seed)
        self.trace = Trace(self.loop, trace)
        self.referee = Referee(self.loop, self.trace)
        self.store = SimulatedStore(self.loop, self.referee, fence)
        # A random stream of its own: with the loop's, every draw here would depend on every shuffle there.
        self._rng = random.Random(~seed)
        self._draw = self._rng.random
        self._settings = self._some_settings()
        self._nodes = [self._node(name) for name in NODES]
        self._healed = False
        self.loop.look = self.referee.look
        self.loop.failed = self.referee.fail

    def run(self) -> str | None:
        try:
            self.loop.run_until_complete(self._play())
        except Broken as broken:
            self._abandon()
            return str(broken)
        except (Deadlock, Livelock) as stuck:
            self._abandon()
            return f"{type(stuck).__name__}: {stuck}"
        self.referee.judge_history()
        return self.referee.violation

    # --- what this seed is like ---

    def _some_settings(self) -> LeaderSettings:
        draw = self._draw
        lease_s = 5 + 3 * draw()
        return leader_settings(
            lease=lease_s,
            stall_limit=lease_s * (0.5 + draw()),
            on_error="retry" if draw() < 0.8 else "drop",
            release_on_stop=draw() < 0.85,
        )

    def _some_weather(self) -> Weather:
        def chance(often: float) -> float:
            return 0.0 if self._draw() < 0.4 else self._draw() * often

        lease_s = self._settings.lease_s
        return Weather(
            latency_s=0.002 + 0.05 * self._draw(), cut_before=chance(0.1), cut_after=chance(0.25), tail=chance(0.3),
            tail_s=(0.3 + 2.2 * self._draw()) * lease_s, stutter=chance(0.2), pause_on_answer=chance(0.05),
            hint_lost=chance(1.0), hint_twice=chance(0.5),
        )  # fmt: skip

    def _node(self, name: str) -> Node:
        line = Line(self.loop, self._draw, self.store, self.referee, self._some_weather())
        node = Node(name, self.loop, line, self.referee, self._settings, self._rng, self.trace)
        line.pause = lambda: self._pause(node)
        self.referee.nodes[name] = node
        return node

    # --- the play ---

    async def _play(self) -> None:
        for node in self._nodes:
            node.user.begin(node.open())
        end_s = self.loop.time() + TROUBLE_S
        while (left_s := end_s - self.loop.time()) > 0:
            await asyncio.sleep(min(left_s, self._rng.expovariate(1 / 4.0)))
            self._one_trouble()
        await self._judge_liveness()
        await asyncio.sleep(CALM_S)
        await self._judge_end()

    def _one_trouble(self) -> None:
        node = self._target()
        troubles: tuple[tuple[float, Callable[[Node], None]], ...] = (
            (0.20, self._pause), (0.13, self._block), (0.18, self._dig_hole), (0.06, self._restart_store),
            (0.10, self._step_down), (0.10, self._restart), (0.10, self._invent_hint), (0.05, self._ask_step_down),
            (0.03, self._take_away), (0.05, self._promote),
        )  # fmt: skip
        left = self._draw()
        for weight, trouble in troubles:
            left -= weight
            if left < 0:
                return trouble(node)
        return None

    def _target(self) -> Node:
        """Mostly the holder of the row: trouble elsewhere seldom has an effect."""
        row = self.store.row
        holder = next((n for n in self._nodes if row is not None and n.name == row.holder_id), None)
        return holder if holder is not None and self._draw() < 0.6 else self._rng.choice(self._nodes)

    async def _judge_liveness(self) -> None:
        self._healed = True
        self.trace.note("world", "all is healed")
        for node in self._nodes:
            node.line.heal()
        await asyncio.sleep(0)
        settings = self._settings
        limit_s = max(settings.lease_s, READ_LIMIT_S) + settings.acquire_every_s + SLACK_S
        end_s = self.loop.time() + limit_s
        while not self.referee.somebody_leads:
            if self.loop.time() >= end_s:
                self.referee.fail(f"nobody leads {limit_s:.1f} s after everything was healed")
                return
            await asyncio.sleep(0.2)

    async def _judge_end(self) -> None:
        closing = [node.user.begin(node.close()) for node in self._nodes]
        await asyncio.wait(closing)
        for task in closing:
            task.result()
        await asyncio.sleep(self._settings.call_limit_s)
        me = asyncio.current_task()
        left = [task.get_name() + repr(task.get_coro()) for task in self.loop.tasks_pending() if task is not me]
        if left:
            self.referee.fail(f"tasks were left behind: {', '.join(left)}")

    def _abandon(self) -> None:
        """End everything after a violation, and ignore the errors of that."""
        self.loop.look = lambda: None
        self.loop.failed = lambda text: None
        for node in self._nodes:
            for side in (node.keeper, node.user):
                while side.halted:
                    side.go_on()
        self.loop.set_exception_handler(lambda loop, context: None)
        for _ in range(5):
            pending = self.loop.tasks_pending()
            if not pending:
                return
            for task in pending:
                task.cancel()
            self.loop.call_later(2.0, self.loop.stop)
            self.loop.run_forever()

    # --- troubles ---

    def _for_a_while(self, seconds: float, undo: Callable[[], None]) -> None:
        self.loop.call_later(seconds, undo, context=self.loop.world)

    def _pause(self, node: Node) -> None:
        """SIGSTOP: both threads stand still."""
        if self._healed or node.keeper.halted:
            return
        for_s = self._settings.lease_s * (0.2 + 1.8 * self._draw())
        self.trace.note(node.name, f"is paused for {for_s:.2f} s")
        node.disturb(for_s)
        sides = (node.keeper, node.user)
        for side in sides:
            side.halt()

        def go_on() -> None:
            self.trace.note(node.name, "goes on")
            for side in sides:
                side.go_on()

        self._for_a_while(min(for_s, self._time_left_s()), go_on)

    def _time_left_s(self) -> float:
        return max(0.0, TROUBLE_S - self.loop.time())

    def _block(self, node: Node) -> None:
        """User code blocks its event loop; the keeper goes on."""
        if node.blocked_at_s is not None:
            return
        for_s = self._settings.lease_s * (0.2 + 3.5 * self._draw())
        self.trace.note(node.name, f"blocks its event loop for {for_s:.2f} s")
        node.disturb(for_s)
        node.blocked_at_s = node.keeper.running_s()
        node.user.halt()

        def go_on() -> None:
            self.trace.note(node.name, "unblocks its event loop")
            node.blocked_at_s = None
            node.user.go_on()

        self._for_a_while(min(for_s, self._time_left_s()), go_on)

    def _dig_hole(self, node: Node) -> None:
        for_s = self._settings.lease_s * (0.2 + 1.8 * self._draw())
        self.trace.note(node.name, f"gets no answers for {for_s:.2f} s")
        node.disturb(for_s)
        node.line.hole_until_s = self.loop.time() + for_s

    def _restart_store(self, node: Node) -> None:
        self.trace.note("store", "restarts")
        self.store.restart()
        self._store_is_away()

    def _promote(self, node: Node) -> None:
        """A standby takes over without the last commits: often it lacks none, sometimes many."""
        self.store.promote(lost=int(LOST_MAX * self._draw() ** 2))
        self._store_is_away()

    def _store_is_away(self) -> None:
        for each in self._nodes:
            each.disturb()
        self.store.is_down = True

        def up() -> None:
            self.trace.note("store", "is back")
            self.store.is_down = False

        self._for_a_while(min(0.2 + 2.8 * self._draw(), self._time_left_s()), up)

    def _step_down(self, node: Node) -> None:
        node.user.begin(node.step_down())

    def _restart(self, node: Node) -> None:
        node.user.begin(node.restart())

    def _invent_hint(self, node: Node) -> None:
        what = self._rng.choice((ACQUIRED, RELEASED, RELEASED, RELEASED, ASKED, UNKNOWN))
        self.trace.note(node.name, f"hears a false hint: {what}")
        node.line.hint(what, LEASE_NAME)

    def _ask_step_down(self, node: Node) -> None:
        self.trace.note("store", "the operator asks the leader to step down")
        self.store.ask_step_down()

    def _take_away(self, node: Node) -> None:
        self.store.take_away()
