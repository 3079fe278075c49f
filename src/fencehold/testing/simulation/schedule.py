"""A schedule is one simulated run: three processes and a store have the trouble of a month in a minute of virtual time.

A seed decides everything. First comes trouble, then calm: once everything works again, what the library promises must
come true in time, all processes must shut down in time, and nothing may be left behind. Each kind of schedule adds
processes, a referee and troubles of its own.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import STUTTER_S_MAX, Line, Weather
from fencehold.testing.simulation.process import TROUBLE_S, Process
from fencehold.testing.simulation.referee import Broken, Referee, Trace
from fencehold.testing.simulation.virtual_loop import Deadlock, Livelock

NODES = ("A", "B", "C")
CALM_S = 1.0
LIVENESS_SLACK_S = 3.0
LOOK_EVERY_S = 0.2
PAUSED_AGAIN, SOON_S = 0.25, 1.0
LEASE_S_MIN, LEASE_S_MAX = 5.0, 8.0

Trouble = tuple[float, Callable[[], None]]  # how often, and what happens


class Schedule(ABC):
    """One simulated run: it starts the processes, makes troubles, ends them, and lets the referee judge what happened.

    A subclass for each kind (leases, locks, outbox, items) sets the attributes that are declared here. `run` returns
    the text of the first violation, or None if the run was clean.
    """

    #: The ids of the rules that should fire in some schedule.
    rules: ClassVar[frozenset[str]]
    #: The ids of the rules that fired in this run.
    rules_fired: Collection[str]
    #: How long requests that are under way may go on after all was closed.
    settles_s: float
    referee: Referee
    nodes: Sequence[Process]

    def __init__(self, seed: int, trace: bool) -> None:
        self.loop = SimulationLoop(seed)
        self.trace = Trace(self.loop, trace)
        # A random stream of its own: with the loop's, every draw here would depend on every shuffle there.
        self.rng = random.Random(~seed)
        self.draw = self.rng.random
        self.lease_s = LEASE_S_MIN + (LEASE_S_MAX - LEASE_S_MIN) * self.draw()
        self._healed = False

    def run(self) -> str | None:
        self.loop.look, self.loop.failed = self.referee.look, self.referee.fail
        try:
            with drawing_from(self.rng):
                self.loop.run_until_complete(self._play())
        except Broken as broken:
            self._abandon()
            return str(broken)
        except (Deadlock, Livelock) as stuck:
            self._abandon()
            return f"{type(stuck).__name__}: {stuck}"
        self.referee.judge_end()
        return self.referee.violation

    # --- what differs by kind ---

    @abstractmethod
    def troubles(self) -> tuple[Trouble, ...]: ...

    def target(self) -> Process:
        """Return the process that gets the next trouble."""
        return self.rng.choice(self.nodes)

    def restart_store(self) -> None:
        """Restart the store: it keeps its rows and loses everything that belongs to connections."""
        return

    @abstractmethod
    async def judge_calm(self) -> None:
        """Wait for what must happen once everything works again. Record a violation if it does not happen in time."""

    def judge_left(self) -> None:
        """Record a violation if the store still has what should be gone. Called when every process has been closed."""
        return

    # --- what this seed is like ---

    def line(self) -> Line:
        return Line(self.loop, self.draw, self._some_weather(), self.lease_s)

    def _some_weather(self) -> Weather:
        def chance(often: float) -> float:
            return 0.0 if self.draw() < 0.4 else self.draw() * often

        return Weather(
            latency_s=0.002 + 0.05 * self.draw(), cut_before=chance(0.1), cut_after=chance(0.25), tail=chance(0.3),
            tail_s=(0.3 + 2.2 * self.draw()) * self.lease_s, stutter=chance(0.2), pause_on_answer=chance(0.05),
            hint_lost=chance(1.0), hint_twice=chance(0.5),
        )  # fmt: skip

    # --- the play ---

    async def _play(self) -> None:
        for node in self.nodes:
            node.line.pause = partial(self.pause, node)
            node.user.begin(node.open())
        # Each seed has its own mixture: rare combinations come together sooner than if all seeds were alike.
        troubles = self.troubles()
        weights = [often * self.draw() ** 2 for often, _ in troubles]
        while (left_s := self._time_left_s()) > 0:
            await asyncio.sleep(min(left_s, self.rng.expovariate(1 / 4.0)))
            self.rng.choices(troubles, weights)[0][1]()
        self._healed = True
        self.trace.note("world", "all is healed")
        for node in self.nodes:
            node.line.heal()
        await asyncio.sleep(0)
        await self.judge_calm()
        await asyncio.sleep(CALM_S)
        await self._judge_end()

    async def _judge_end(self) -> None:
        await ended([node.user.begin(node.close()) for node in self.nodes])
        await asyncio.sleep(self.settles_s + STUTTER_S_MAX)
        me = asyncio.current_task()
        left = [task.get_name() + repr(task.get_coro()) for task in self.loop.tasks_pending() if task is not me]
        self.referee.must(not left, f"tasks were left behind: {', '.join(left)}")
        self.judge_left()

    def _abandon(self) -> None:
        """End all threads and tasks after a violation; errors that come of ending them are ignored."""
        self.loop.look = lambda: None
        self.loop.failed = lambda text: None
        for node in self.nodes:
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

    async def wait_for(self, condition: Callable[[], bool], limit_s: float, instead: str) -> None:
        """Wait until `condition()` is true.

        If that takes longer than `limit_s`, record a violation with the text `instead`.
        """
        end_s = self.loop.time() + limit_s
        while not condition():
            if self.loop.time() >= end_s:
                self.referee.fail(f"{instead} {limit_s:.1f} s after everything was healed")
                return
            await asyncio.sleep(LOOK_EVERY_S)

    # --- troubles that every kind has ---

    def _time_left_s(self) -> float:
        return max(0.0, TROUBLE_S - self.loop.time())

    def for_a_while(self, seconds: float, undo: Callable[[], None]) -> None:
        self.loop.call_later(min(seconds, self._time_left_s()), undo)

    def pause(self, node: Process) -> None:
        """Halt both threads of the process for a random while, as SIGSTOP does.

        Does nothing once all faults have ended.
        """
        if self._healed or node.keeper.halted:
            return
        for_s = self.lease_s * (0.2 + 1.8 * self.draw())
        self.trace.note(node.name, f"is paused for {for_s:.2f} s")
        node.disturb(for_s)
        sides = (node.keeper, node.user)
        for side in sides:
            side.halt()

        def go_on() -> None:
            self.trace.note(node.name, "goes on")
            for side in sides:
                side.go_on()
            if self.draw() < PAUSED_AGAIN:
                self.for_a_while(self.draw() * SOON_S, partial(self.pause, node))

        self.for_a_while(for_s, go_on)

    def pauses(self) -> None:
        self.pause(self.target())

    def blocks(self) -> None:
        node, for_s = self.target(), self.lease_s * (0.2 + 3.5 * self.draw())
        node.disturb(for_s)
        node.block(for_s)

    def gets_no_answers(self) -> None:
        node, for_s = self.target(), self.lease_s * (0.2 + 1.8 * self.draw())
        self.trace.note(node.name, f"gets no answers for {for_s:.2f} s")
        node.disturb(for_s)
        node.line.hole_until_s = self.loop.time() + for_s

    def store_restarts(self) -> None:
        self.trace.note("store", "restarts")
        self.restart_store()
        self.store_is_away()

    def store_is_away(self) -> None:
        self._set_down(True)

        def up() -> None:
            self.trace.note("store", "is back")
            self._set_down(False)

        self.for_a_while(0.2 + 2.8 * self.draw(), up)

    def _set_down(self, is_down: bool) -> None:
        for node in self.nodes:
            node.disturb()
            node.line.is_down = is_down

    def restarts(self) -> None:
        node = self.target()
        node.user.begin(node.restart())


async def ended(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait for all of these tasks, then raise the error of the first one that failed, if any."""
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


@contextmanager
def drawing_from(rng: random.Random) -> Iterator[None]:
    """Inside the block, all random values of the product (jitter, tokens) come from `rng`."""
    token_hex, seed = secrets.token_hex, random.Random.seed

    def seed_from_here(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed(self, rng.random() if a is None else a, version)

    secrets.token_hex = lambda nbytes=None: f"{rng.getrandbits(8 * (nbytes or 32)):0{2 * (nbytes or 32)}x}"
    random.Random.seed = seed_from_here  # type: ignore[method-assign]
    try:
        yield
    finally:
        secrets.token_hex, random.Random.seed = token_hex, seed  # type: ignore[method-assign]
