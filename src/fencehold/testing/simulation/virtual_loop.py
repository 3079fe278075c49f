"""Same seed, same run: an asyncio loop whose clock is virtual and whose ready callbacks run in a seeded order.

- Time stands still while anything is ready and then jumps to the next timer: hours of leases pass in milliseconds.
- Callbacks that are ready together run in an order drawn from the seed, so many seeds try many interleavings.
- The same seed gives the same run in every process: tasks hash by their number, so sets of them never order by address.
- `Deadlock` is raised when nothing can ever run again, `Livelock` when callbacks go on for ever without time passing.

Not promised: sockets, subprocesses and signals do not exist here, other threads may not call in, and only `loop.time()`
is virtual: code that reads `time.monotonic()` sees the real clock. Callbacks do not run in asyncio's own order (first
in, first out): a program that relies on that order may fail here and nowhere else.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CALLBACKS_PER_INSTANT_MAX = 100_000
TIMERS_CANCELLED_MIN = 64


class Deadlock(RuntimeError):
    """Raised when no callback is ready and no timer is set: what the named tasks wait for can never happen."""


class Livelock(RuntimeError):
    """Raised when more callbacks than the loop's limit have run one after the other without virtual time passing."""


class _OrderedFuture(asyncio.Future[T]):
    """A future that hashes by its number of creation, so that a set of futures has one order in every process."""

    ordinal: int = 0

    def __hash__(self) -> int:
        return self.ordinal


class _OrderedTask(asyncio.Task[T]):
    """A task that hashes by its number of creation: a TaskGroup cancels its children in the order of a set of tasks."""

    # asyncio registers the task in a set inside the constructor, so the number must be known before it runs.
    def __init__(self, coro: Any, ordinal: int, **options: Any) -> None:
        self.ordinal = ordinal
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.ordinal


class InWorld(asyncio.AbstractEventLoop):
    """An event loop without a queue of its own: the `VirtualLoop` in `_world` keeps its callbacks, timers and tasks."""

    _world: VirtualLoop

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self._world.soon(self, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._world.at(self, when, callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._world.at(self, self._world._now + delay, callback, args, context)

    def create_future(self) -> asyncio.Future[Any]:
        return self._world.future(self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        return self._world.task(self, coro, **options)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._world.timer_cancelled(handle)


class VirtualLoop(InWorld, asyncio.BaseEventLoop):
    """An event loop on virtual time that runs the same program in the same order for the same seed.

    `seed=None` keeps asyncio's own order of callbacks. Raises Livelock after more than `callbacks_per_instant_max`
    callbacks at one virtual instant, Deadlock when nothing can ever run again.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        start_s: float = 0.0,
        callbacks_per_instant_max: int = CALLBACKS_PER_INSTANT_MAX,
    ) -> None:
        super().__init__()
        self._world = self
        self.set_debug(False)  # debug mode measures callbacks on the real clock
        self.seed = seed
        self.callbacks_run = 0
        self._now = start_s
        # random.random() is the one draw that Python promises to keep the same in all versions; shuffle() is not.
        self._draw = random.Random(seed).random if seed is not None else None
        self._callbacks_per_instant_max = callbacks_per_instant_max
        self._callbacks_this_instant = 0
        self._queue: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_cancelled = 0
        self._ordinal = 0
        self._thread_of_birth = threading.get_ident()
        self._tasks_made: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        """Return the virtual time in seconds; it moves only when no callback is ready."""
        return self._now

    def tasks_pending(self) -> list[asyncio.Task[Any]]:
        """Return every unfinished task of this loop, oldest first: `asyncio.all_tasks()` has no stable order."""
        return [task for task in self._tasks_made if not task.done()]

    # Scheduling, for this loop and for all that turn in it

    def soon(self, loop: Any, callback: Callable[..., object], args: Any, context: Context | None) -> asyncio.Handle:
        self._check_closed()  # type: ignore[attr-defined]  # of BaseEventLoop
        handle = asyncio.Handle(callback, args, loop, context)
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread_of_birth:
            raise RuntimeError("VirtualLoop takes no calls from other threads: their timing has no seed")
        return self.call_soon(callback, *args, context=context)

    def at(
        self, loop: Any, when: float, callback: Callable[..., object], args: Any, context: Context | None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]  # of BaseEventLoop
        timer = asyncio.TimerHandle(when, callback, args, loop, context)
        self._ordinal += 1
        heapq.heappush(self._timers, (when, self._ordinal, timer))
        return timer

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None:
        # A simulation with a timeout on every call cancels nearly every timer; if kept, they would fill the heap.
        self._timers_cancelled += 1
        if self._timers_cancelled > TIMERS_CANCELLED_MIN and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled() and entry[2] is not handle]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    # Futures and tasks, also for all loops

    def future(self, loop: Any) -> asyncio.Future[Any]:
        future: _OrderedFuture[Any] = _OrderedFuture(loop=loop)
        self._ordinal += 1
        future.ordinal = self._ordinal
        return future

    def task(self, loop: Any, coro: Any, name: object = None, **options: Any) -> asyncio.Task[Any]:
        self._ordinal += 1
        # asyncio numbers tasks per process; named per loop, the names in a trace repeat with the seed.
        named = f"task-{self._ordinal}" if name is None else str(name)
        task: _OrderedTask[Any] = _OrderedTask(coro, self._ordinal, loop=loop, name=named, **options)
        self._tasks_made.append(task)
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` on the loop's own thread as a callback, and return a future with its result or error.

        Other callbacks may run before `func`, and between `func` and its result.
        """
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - the caller's future carries it, whatever it is
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_soon(work)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: this loop never makes threads."""

    # The only private part of asyncio that is used here: BaseEventLoop.run_forever calls _run_once until stop().

    def run_forever(self) -> None:
        self._callbacks_this_instant = 0
        super().run_forever()

    def _run_once(self) -> None:
        if not self._queue:
            self._jump_to_next_timer()
        self._callbacks_this_instant += len(self._queue)
        if self._callbacks_this_instant > self._callbacks_per_instant_max:
            raise Livelock(
                f"more than {self._callbacks_per_instant_max} callbacks at virtual time {self._now} s; "
                f"unfinished: {self._describe_pending()}"
            )
        batch, self._queue = self._queue, []
        if self._draw is not None:
            self._shuffle(batch, self._draw)
        self.callbacks_run += len(batch)
        self._run_batch(batch)

    def _run_batch(self, batch: list[asyncio.Handle]) -> None:
        batch.reverse()
        try:
            while batch:
                handle = batch.pop()
                if not handle._cancelled:
                    handle._run()
        finally:
            # Only an interrupt escapes from a callback; the callbacks after it are still due.
            if batch:
                self._queue[:0] = reversed(batch)

    @staticmethod
    def _shuffle(batch: list[asyncio.Handle], draw: Callable[[], float]) -> None:
        for last in range(len(batch) - 1, 0, -1):
            chosen = int(draw() * (last + 1))
            batch[last], batch[chosen] = batch[chosen], batch[last]

    def _jump_to_next_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(
                f"nothing can ever run again at virtual time {self._now} s; waiting: {self._describe_pending()}"
            )
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._callbacks_this_instant = 0
        while timers and timers[0][0] <= self._now:
            self._queue.append(heapq.heappop(timers)[2])

    def _describe_pending(self) -> str:
        return ", ".join(f"{task.get_name()} in {_place(task)}" for task in self.tasks_pending()) or "no task"

    def close(self) -> None:
        if not self.is_closed() and not self.is_running():
            self._queue.clear()
            self._timers.clear()
        super().close()


def _place(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    return f"{stack[0].f_code.co_qualname}:{stack[0].f_lineno}" if stack else "no frame"


def run(coro_fn: Callable[[], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    """Run `coro_fn()` to its end on a new loop of this seed, and return its result.

    Tasks that it left behind are cancelled and ended first. An error of `coro_fn()`, Deadlock and Livelock are raised.
    """
    loop = VirtualLoop(seed)
    try:
        result = loop.run_until_complete(coro_fn())
    except BaseException:
        # The tasks left behind may be stuck like the program; raise the first failure, not theirs.
        with suppress(Deadlock, Livelock):
            _end_leftovers(loop)
        raise
    else:
        _end_leftovers(loop)
        return result
    finally:
        loop.close()


def _end_leftovers(loop: VirtualLoop) -> None:
    leftovers = loop.tasks_pending()
    for task in leftovers:
        task.cancel()
    if leftovers:
        loop.run_until_complete(asyncio.wait(leftovers))
    loop.run_until_complete(loop.shutdown_asyncgens())
