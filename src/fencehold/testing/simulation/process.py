"""A process of the simulation: two threads (the keeper's and the user's), a clock, and a network line to the store."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fencehold.backends.memory.backend import Shelf
from fencehold.runtime.context import KeeperServices, StoreContext
from fencehold.telemetry.traces import NoTraces
from fencehold.testing.simulation.loop import Side, SimulationLoop, side
from fencehold.testing.simulation.network import BackendOverLine, Line
from fencehold.testing.simulation.referee import SLACK_S, Referee

T = TypeVar("T")

TROUBLE_S = 30.0  # four to six leases; then all faults end ("healed")
OPEN_LIMIT_S = 5.0
AWAY_S_MAX = 2.0
PAUSE_BEFORE_WRITE = 0.04
NEVER_S = -1.0
NOT_TRACED = {"worker_watched"}
NOT_SHOWN = {"lease_name", "holder_id", "expires_at", "outbox", "worker_id", "tracking_id", "event_type", "traceback"}
TICK_S = 1e-6  # a real clock has moved on after every wait


class NodeClock:
    """The clock of one simulated process: its rate is up to 1 % off, which is below every margin, and it has an offset.

    It runs on while the process's threads are halted.
    """

    def __init__(self, loop: SimulationLoop, rng: random.Random) -> None:
        self.rate = 0.99 + 0.02 * rng.random()
        self._loop = loop
        self._offset_s = rng.random() * 10_000

    def now_s(self) -> float:
        return self._offset_s + self._loop._now * self.rate

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        if event.is_set():
            return True
        if timeout_s is None:
            return await event.wait()
        # asyncio.timeout, in fewer steps: a future among the event's own waiters, which a timer can end too.
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(max(timeout_s, TICK_S) / self.rate, _end_wait, waiter, event)
        event._waiters.append(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            event._waiters.remove(waiter)


def _end_wait(waiter: asyncio.Future[bool], event: asyncio.Event) -> None:
    if not waiter.done():
        waiter.set_result(event.is_set())


class NodeHost:
    """The keeper's thread as the user's thread sees it: work is handed over, and results come back, by `Side.put`."""

    def __init__(self, keeper: Side) -> None:
        self._keeper = keeper

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        self._keeper.put(callback, *args)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        caller = asyncio.get_running_loop()
        result: asyncio.Future[T] = caller.create_future()
        self._keeper.put(self._start, work, result, caller)
        return result

    def _start(self, work: Coroutine[Any, Any, T], result: asyncio.Future[T], caller: Side) -> None:
        if result.cancelled():
            work.close()
            return
        task = self._keeper.begin(work)
        task.add_done_callback(lambda done: caller.put(_hand_over, done, result))
        result.add_done_callback(lambda over: self._keeper.put(task.cancel) if over.cancelled() else None)


def _hand_over(done: asyncio.Task[T], result: asyncio.Future[T]) -> None:
    if result.done():
        if not done.cancelled():
            done.exception()
        return
    if done.cancelled():
        result.cancel()
    elif (error := done.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(done.result())


class Process(ABC):
    """A simulated process, the base class for all kinds.

    Methods run on the user's thread, unless a comment says otherwise.
    """

    def __init__(self, name: str, line: Line, referee: Referee, rng: random.Random) -> None:
        self.name, self.line = name, line
        line.node = self
        self.keeper, self.user = side(referee.loop, f"{name}.keeper"), side(referee.loop, f"{name}.user")
        self.clock = NodeClock(referee.loop, rng)
        self.blocked_at_s: float | None = None  # seconds the keeper had run when the user's thread was blocked
        self.disturbed_s = NEVER_S  # until when something came between this process and the store
        self.host = NodeHost(self.keeper)
        self._rng, self._draw = rng, rng.random
        self._loop, self._trace, self._fail = referee.loop, referee.trace, referee.fail
        self._settled = asyncio.Event()  # no start and no restart is under way

    # --- troubles, called by the schedule and on none of the two threads ---

    def disturb(self, for_s: float = 0.0) -> None:
        """Record that the way between this process and the store is disturbed, from now on for `for_s` seconds."""
        self.disturbed_s = max(self.disturbed_s, self._loop.time() + for_s)

    def answer_lost(self) -> None:
        """Record a disturbance. The line calls this when a request was executed and its answer is lost."""
        self.disturb()

    def block(self, for_s: float) -> None:
        """Halt the user's thread for `for_s` seconds, as if user code blocked its event loop.

        The keeper's thread goes on.
        """
        for_s = min(for_s, TROUBLE_S - self._loop.time())
        if self.blocked_at_s is not None or for_s <= 0:
            return
        self._trace.note(self.name, f"blocks its event loop for {for_s:.2f} s")
        self.blocked_at_s = self.keeper.running_s()
        self.user.halt()
        self._loop.call_later(for_s, self._unblock)

    def _unblock(self) -> None:
        self._trace.note(self.name, "unblocks its event loop")
        self.blocked_at_s = None
        self.user.go_on()

    # --- life ---

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None:
        """End all that `start` began.

        A subclass makes sure that this ends within its limit, whatever the store does.
        """

    async def open(self) -> None:
        await self.start()
        self._settled.set()

    async def restart(self) -> None:
        """Stop, stay away for a while, start again.

        Does nothing during another start, or after all faults have ended.
        """
        if not self._settled.is_set() or self._loop.time() >= TROUBLE_S:
            return
        self._settled.clear()
        try:
            await self.stop()
            await asyncio.sleep(self._draw() * AWAY_S_MAX)
            await self.start()
        finally:
            self._settled.set()

    async def close(self) -> None:
        """End the run of this process: give everything back and leave no task behind."""
        await self._settled.wait()
        await self.stop()

    def some_timeout_s(self, most_s: float) -> float | None:
        """Return a random timeout of at most `most_s`, as a user may give it, or None: no timeout.

        Once all faults have ended it is always None.
        """
        return None if self._loop.time() >= TROUBLE_S or self._draw() < 0.5 else self._draw() * most_s

    async def within(self, limit_s: float, what: str, work: Awaitable[T]) -> T | None:
        """Return the result of `work`.

        If it takes longer than `limit_s`, record a violation that names `what`, and return None.

        The time in which this thread was halted does not count.
        """
        since_s = self.user.running_s()
        task = asyncio.ensure_future(work)
        while not task.done():
            left_s = limit_s + 3 * SLACK_S - (self.user.running_s() - since_s)
            if left_s <= 0:
                self._fail(f"{self.name}: {what} did not end within {limit_s:.2f} s")
                return None
            await asyncio.wait([task], timeout=left_s)
        return task.result()

    async def pause_point(self) -> None:
        """Wait a moment, and sometimes halt the process first.

        Called between a check and a write: there a pause does most harm.
        """
        if self._draw() < PAUSE_BEFORE_WRITE:
            self.line.pause()
        await asyncio.sleep(self._draw() * 0.02)

    # --- facts, on either thread ---

    def fact(self, event: str, **fields: Any) -> None:
        self.heard(event, fields)
        if event in {"internal_error", "callback_failed"}:
            self._fail(f"{self.name}: {event}: {fields.get('error')}")
        if self._trace.on and event not in NOT_TRACED:
            self._trace.note(self.name, f"{event} {_shown(fields)}")

    def heard(self, event: str, fields: dict[str, Any]) -> None:
        """Look at a fact that this process reports, that is, an event for the log with its fields.

        A subclass may override this.
        """
        return


class StoreProcess(Process):
    """A simulated process that has an open store. `context` is the library's own StoreContext."""

    def __init__(
        self, name: str, line: Line, shelf: Shelf, call_limit_s: float, referee: Referee, rng: random.Random
    ) -> None:
        super().__init__(name, line, referee, rng)
        self.call_limit_s = call_limit_s
        self._shelf = shelf
        self.context = StoreContext(self.backend, self.clock, self, NoTraces(), label=name)

    def backend(self) -> BackendOverLine:
        return BackendOverLine(self._shelf, self.line, self)

    @abstractmethod
    def sending(self, verb: str, args: tuple[Any, ...]) -> None: ...

    @abstractmethod
    def answered(self, verb: str, args: tuple[Any, ...], answer: Any) -> None: ...

    async def open(self) -> None:
        self.context.opened(await self.host.begin(self._open()), self.host)
        await super().open()

    async def _open(self) -> KeeperServices:
        keeper = KeeperServices(self.context.make_backend(), self.clock, self.context.facts)
        await keeper.open(OPEN_LIMIT_S)
        return keeper

    async def close_parts(self) -> None:
        """Close what uses the store. It is called after the process has stopped, and before the store is closed."""
        return

    async def close(self) -> None:
        await super().close()
        await self.close_parts()
        await self.within(self.call_limit_s, "close", self.host.begin(self.context.keeper.close()))


def _shown(fields: dict[str, Any]) -> str:
    """Return a fact's fields as text for the trace, without the fields that every fact has."""
    shown = {key: value for key, value in fields.items() if key not in NOT_SHOWN}
    return " ".join(f"{key.removeprefix('lease_')}={value}" for key, value in shown.items() if value is not None)
