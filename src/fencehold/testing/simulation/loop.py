"""A process in the simulation: two threads, the keeper's and the user's, that can be stopped between any two callbacks.

Every callback belongs to the thread in whose context it was made. All callbacks, timers and messages of a halted thread
are put aside, and run when it goes on. SIGSTOP halts both threads of a process, a blocked event loop only one. Clocks
run on meanwhile. What one thread hands to another arrives in the order in which it was handed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappush
from typing import Any, TypeVar, TypeVarTuple

from fencehold.testing.simulation.virtual_loop import Livelock, VirtualLoop, _OrderedTask

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Side:
    """One thread of one process."""

    def __init__(self, loop: SimulationLoop, label: str) -> None:
        self.label = label
        self.user = self
        self.halted = False
        self.aside: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(_SIDE.set, self)
        self._loop = loop
        self._mail: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._reasons = 0
        self._halted_s = 0.0
        self._halted_since_s = 0.0

    def halt(self) -> None:
        self._reasons += 1
        if not self.halted:
            self.halted = True
            self._halted_since_s = self._loop.time()

    def go_on(self) -> None:
        self._reasons -= 1
        if self._reasons == 0:
            self.halted = False
            self._halted_s += self._loop.time() - self._halted_since_s
            self._loop.due_again(self.aside)
            self.aside = []

    def running_s(self) -> float:
        """Seconds this thread has not been halted."""
        now_s = self._loop.time()
        return now_s - self._halted_s - (now_s - self._halted_since_s if self.halted else 0.0)

    def put(self, callback: Callable[..., object], *args: Any) -> None:
        """Run it on this thread, after everything put there before."""
        self._mail.append((callback, args))
        self._loop.call_soon(self._take, context=self.context)

    def _take(self) -> None:
        # The loop shuffles what is ready together. Each turn takes the oldest message, so messages keep their order.
        callback, args = self._mail.popleft()
        callback(*args)

    def begin(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """A task of this thread."""
        task: asyncio.Task[T] = self._loop.create_task(work, name=name, context=self.context)
        return task


_SIDE: ContextVar[Side | None] = ContextVar("fencehold_simulation_side", default=None)


class _Turn(asyncio.Handle):
    """A handle without the debug records of asyncio's own: a run makes thousands."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: Any, loop: Any, context: Context | None) -> None:
        self._context = context if context is not None else copy_context()
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: Any, loop: Any, context: Any) -> None:
        self._context = context if context is not None else copy_context()
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        # It stays in the heap: a cancelled timer is skipped when its time comes, and a run is over in a minute.
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class SimulationLoop(VirtualLoop):
    """One virtual loop for all processes and for the world between them; `look` is called before time moves on."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = copy_context()
        self.look: Callable[[], None] = _nothing
        self.failed: Callable[[str], None] = _ignored
        self._tasks_begun: list[asyncio.Task[Any]] = []
        self.set_exception_handler(self._log_failure)

    def due_again(self, handles: list[asyncio.Handle]) -> None:
        self._queue.extend(handles)

    def tasks_pending(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks_begun if not task.done()]

    # The same as in VirtualLoop, in fewer steps: ten thousand schedules have to fit into a test run.

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Turn(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._ordinal += 1
        heappush(self._timers, (when, self._ordinal, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback on the user's thread: the library calls this on the keeper's thread, and only for that."""
        side = _SIDE.get()
        if side is None:
            return self.call_soon(callback, *args, context=context)
        side.user.put(callback, *args)
        return self._queue[-1]

    def create_task(self, coro: Any, *, name: object = None, context: Any = None, **options: Any) -> Any:
        self._ordinal += 1
        task: Any = _OrderedTask(coro, self._ordinal, loop=self, name=name or "task", context=context, **options)
        self._tasks_begun.append(task)
        return task

    def _run_once(self) -> None:
        if not self._queue:
            self.look()
            self._jump_to_next_timer()
        batch, self._queue = self._queue, []
        count = len(batch)
        self._callbacks_this_instant += count
        if self._callbacks_this_instant > self._callbacks_per_instant_max:
            raise Livelock(f"more than {self._callbacks_per_instant_max} callbacks at virtual time {self._now} s")
        if count > 1 and self._draw is not None:
            self._shuffle(batch, self._draw)
        self.callbacks_run += count
        for handle in batch:
            if handle._cancelled:
                continue
            context: Context = handle._context  # type: ignore[attr-defined]
            side = context.get(_SIDE)
            if side is not None and side.halted:
                side.aside.append(handle)
                continue
            try:
                context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
            except Exception as error:  # noqa: BLE001 - the referee gets all that a callback raises
                self.failed(f"a callback raised {error!r}")

    def _log_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failed(f"{context.get('message')}: {context.get('exception')!r}")


def _nothing() -> None:
    return None


def _ignored(text: str) -> None:
    return None


class NodeClock:
    """A clock with its own rate and offset, which runs on during halts."""

    def __init__(self, loop: SimulationLoop, rate: float, offset_s: float) -> None:
        self.rate = rate
        self._loop = loop
        self._offset_s = offset_s

    def now_s(self) -> float:
        return self._offset_s + self._loop._now * self.rate

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        if event.is_set():
            return True
        if timeout_s is None:
            return await event.wait()
        # asyncio.timeout, in fewer steps: a future among the event's own waiters, which a timer can end too.
        loop = self._loop
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_at(loop._now + timeout_s / self.rate, _end_wait, waiter, event)
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
    """The keeper's thread, for the user's thread: work goes there, and its result comes back, by `Side.put`."""

    def __init__(self, loop: SimulationLoop, keeper: Side, user: Side) -> None:
        self._loop = loop
        self._keeper = keeper
        self._user = user

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        self._keeper.put(callback, *args)

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        result: asyncio.Future[T] = self._loop.create_future()
        self._keeper.put(self._start, work, result)
        return result

    def _start(self, work: Coroutine[Any, Any, T], result: asyncio.Future[T]) -> None:
        if result.cancelled():
            work.close()
            return
        task = self._loop.create_task(work)
        task.add_done_callback(lambda done: self._user.put(_hand_over, done, result))
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
