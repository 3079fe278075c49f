"""The threads of the simulated processes: each is an event loop of its own that can be stopped between two callbacks.

All these loops run inside one `SimulationLoop`, which owns the queue and the virtual time. Every callback, timer and
task belongs to the loop that it was given to. The callbacks of a halted thread are put aside, and run when the thread
goes on: SIGSTOP halts all threads of a process, a blocked event loop is one halted thread. Clocks run on meanwhile.
What one thread hands to another arrives in the order in which it was handed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from fencehold.testing.simulation.virtual_loop import InWorld, VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulationLoop(VirtualLoop):
    """The outer event loop, which runs the callbacks of all simulated threads in one queue and one virtual time.

    It calls `look` each time before virtual time moves on, and `failed` with a text when a callback raises an error.
    """

    halted = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.look: Callable[[], None] = lambda: None
        self.failed: Callable[[str], None] = lambda text: None
        self.set_exception_handler(self._log_failure)

    def due_again(self, handles: list[asyncio.Handle]) -> None:
        self._queue.extend(handles)

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer stays in the heap until its time comes, which is soon enough in a short run."""

    def _jump_to_next_timer(self) -> None:
        self.look()
        super()._jump_to_next_timer()

    def _run_batch(self, batch: list[asyncio.Handle]) -> None:
        try:
            self._run_in_turn(batch)
        finally:
            asyncio._set_running_loop(self)

    def _run_in_turn(self, batch: list[asyncio.Handle]) -> None:
        running: Any = self
        for handle in batch:
            if handle._cancelled:
                continue
            loop: Any = handle._loop  # type: ignore[attr-defined]
            if loop.halted:
                loop.aside.append(handle)
                continue
            if loop is not running:
                asyncio._set_running_loop(loop)
                running = loop
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
            except Exception as error:  # noqa: BLE001 - the referee gets all that a callback raises
                self.failed(f"a callback raised {error!r}")

    def _log_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failed(f"{context.get('message')}: {context.get('exception')!r}")


class Side(InWorld):
    """One thread of one simulated process, as an event loop that can be halted and can go on."""

    _world: SimulationLoop

    def __init__(self, world: SimulationLoop, label: str) -> None:
        self.label = label
        self.halted = False
        self.aside: list[asyncio.Handle] = []
        self._world = world
        self._mail: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._reasons = 0
        self._halted_s = 0.0
        self._halted_since_s = 0.0

    def halt(self) -> None:
        self._reasons += 1
        if not self.halted:
            self.halted = True
            self._halted_since_s = self._world.time()

    def go_on(self) -> None:
        self._reasons -= 1
        if self._reasons == 0:
            self.halted = False
            self._halted_s += self._world.time() - self._halted_since_s
            self._world.due_again(self.aside)
            self.aside = []

    def running_s(self) -> float:
        """Return for how many seconds this thread has run: the time in which it was halted is not counted."""
        now_s = self._world.time()
        return now_s - self._halted_s - (now_s - self._halted_since_s if self.halted else 0.0)

    def put(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` on this thread, after everything that was put there before by `put`."""
        self._mail.append((callback, args))
        self.call_soon(self._take)

    def _take(self) -> None:
        # The loop shuffles what is ready together. Each turn takes the oldest message, so messages keep their order.
        callback, args = self._mail.popleft()
        callback(*args)

    # --- an event loop ---

    def time(self) -> float:
        return self._world._now

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._world.call_exception_handler(context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._mail.append((callback, args))
        return self._world.soon(self, self._take, (), context)

    def begin(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start `work` as a task on this thread and return the task; the caller may be on another thread."""
        task: asyncio.Task[T] = self._world.task(self, work, name)
        return task


def side(world: SimulationLoop, label: str) -> Side:
    return Side(world, label)  # type: ignore[abstract]  # it has what the product uses of a loop
