"""Callbacks of leaders and locks: registered with decorators, called one at a time, in the order they were sent.

Each has a time limit. A callback that hangs delays later callbacks and nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from fencehold.model.election.election import Emit, LockState
from fencehold.model.errors import ConfigurationError
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.time_limit import TimeLimit

CALLBACK_LIMIT_S = 10.0
DELIVERY_LIMIT_S = 10.0  # for callbacks, when the caller gave no limit
DRAIN_LIMIT_S = 2.0  # for callbacks at a shutdown, however late it is
OVERTIME_S = 1.0  # for all remaining callbacks of a term together, once it is over
ABANDON_S = 1.0  # how long a cancelled callback may take to end
WAITING_MAX = 1000

Broken = Callable[[Exception, Callable[..., Any]], None]


Callback = Callable[[], None] | Callable[[], Awaitable[None]]
StateChangeCallback = Callable[[LockState, LockState], None] | Callable[[LockState, LockState], Awaitable[None]]
ErrorCallback = Callable[[Exception], None] | Callable[[Exception], Awaitable[None]]
C = TypeVar("C", bound=Callback)
S = TypeVar("S", bound=StateChangeCallback)
E = TypeVar("E", bound=ErrorCallback)
F = TypeVar("F", bound=Callable[..., object])
STATE_CHANGE = "on_state_change"
TERM_ENDS = (Emit.LOST, Emit.RELEASED)


class RunsOn(Exception):
    """Raised by a callback that was cancelled but cannot stop, because its thread cannot be ended.

    Its text completes the sentence "callback ... and runs on: ..." in the error that `on_error` gets.
    """


def name_of(callback: Callable[..., Any]) -> str:
    return getattr(callback, "__qualname__", None) or repr(callback)


@dataclass(eq=False)
class Delivery:
    """One call of one callback, waiting or running.

    `ends_term`: the callback reports the end of a term, so `hurry` does not shorten the time that it may take.
    """

    dispatcher: Dispatcher
    number: int
    callback: Callable[..., Any]
    args: tuple[Any, ...]
    ends_term: bool
    until_s: float | None = None
    limit: asyncio.Timeout | None = None
    is_over: bool = False

    @property
    def name(self) -> str:
        return name_of(self.callback)

    def hurry(self, until_s: float) -> None:
        """Make the callback's time limit end at `until_s`, on the event loop's clock, unless it ends earlier."""
        if self.ends_term:
            return
        self.until_s = until_s if self.until_s is None else min(until_s, self.until_s)
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(min(self.until_s, self.limit.when() or self.until_s))


#: The callback being called here. Tasks and threads that a callback starts inherit it.
_inside: ContextVar[Delivery | None] = ContextVar("fencehold_delivery", default=None)


class Dispatcher:
    """Calls callbacks one by one in a task on the caller's event loop. The task ends when no callback is waiting.

    If a callback raises, exceeds its time limit or is cancelled, `broken` is called with the error and the callback.
    Then the next callback runs.
    """

    def __init__(self, broken: Broken, limit_s: float = CALLBACK_LIMIT_S) -> None:
        self._broken = broken
        self._limit_s = limit_s
        self._waiting: deque[Delivery] = deque()
        self._current: Delivery | None = None
        self._at_fault: Delivery | None = None
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.sent = 0  # the number of the last delivery

    def send(self, callback: Callable[..., Any], *args: Any, ends_term: bool = False) -> None:
        """Queue `callback`, to be called after all those sent before.

        When the queue is full, the oldest waiting one is dropped. A callback that `broken` sends gets the number of the
        callback that failed, so whoever waits for that number waits for both.
        """
        if len(self._waiting) >= WAITING_MAX:
            dropped = self._waiting.popleft()
            late = RuntimeError(f"more than {WAITING_MAX} callbacks are waiting: the oldest was dropped")
            self._report(late, dropped)
        if self._at_fault is not None:
            number = self._at_fault.number
        else:
            number = self.sent = self.sent + 1
        self._waiting.append(Delivery(self, number, callback, args, ends_term))
        if self._task is None or self._task.done():
            self._begin()

    def hurry(self) -> None:
        """Give all callbacks sent so far, together, OVERTIME_S seconds to end, because their term is over.

        Coroutines are cancelled at that time; plain functions are still called.
        """
        until_s = asyncio.get_running_loop().time() + OVERTIME_S
        for delivery in self._undelivered():
            delivery.hurry(until_s)

    async def drain(self, limit_s: float, upto: int | None = None) -> bool:
        """Wait until all callbacks sent so far, or up to number `upto`, have run.

        Returns True once they have run, False if `limit_s` passes first.
        """
        last = self.sent if upto is None else upto
        try:
            async with TimeLimit(limit_s):
                while any(delivery.number <= last for delivery in self._undelivered()):
                    if self._task is None or self._task.done():
                        self._begin()  # the task was cancelled, for example when its event loop ended
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    def is_delivering_here(self) -> bool:
        """Return whether the caller runs inside one of our callbacks, on any task or thread.

        Such a caller must not wait for callbacks.
        """
        delivery = _inside.get()
        return delivery is not None and delivery.dispatcher is self and not delivery.is_over

    def stop(self) -> list[str]:
        """Cancel the running callback and drop the waiting ones. Returns the names of all these callbacks."""
        left = [delivery.name for delivery in self._undelivered()]
        self._waiting.clear()
        self._current = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._delivered()
        return left

    def _undelivered(self) -> list[Delivery]:
        return [*([self._current] if self._current is not None else []), *self._waiting]

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name="fencehold-callbacks")
        self._task.add_done_callback(self._delivered)

    def _delivered(self, _: object = None) -> None:
        self._progress.set()
        self._progress = asyncio.Event()  # a new one, because a leader may be used on several event loops in turn

    async def _run(self) -> None:
        while self._waiting:
            self._current = delivery = self._waiting.popleft()
            try:
                await self._deliver(delivery)
            finally:
                if self._current is delivery:
                    self._current = None
                self._delivered()

    async def _deliver(self, delivery: Delivery) -> None:
        _inside.set(delivery)
        try:
            result = delivery.callback(*delivery.args)
            # If a callback returns a task or future, it started that work on its own: do not wait for it.
            if inspect.isawaitable(result) and not asyncio.isfuture(result):
                await self._within_limit(delivery, result)
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the loop must go on
            self._report(error, delivery)
        finally:
            delivery.is_over = True

    def _report(self, error: Exception, delivery: Delivery) -> None:
        outer, self._at_fault = self._at_fault, delivery
        try:
            self._broken(error, delivery.callback)
        finally:
            self._at_fault = outer

    async def _within_limit(self, delivery: Delivery, work: Awaitable[Any]) -> None:
        """Await `work`, a callback's coroutine, in its own task. Raises TimeoutError if it takes longer than its limit.

        If the task then ignores its cancellation, it is left running, so that the next callback can start.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(_seen)
        began_s = asyncio.get_running_loop().time()
        ends_s = began_s + self._limit_s
        try:
            async with asyncio.timeout_at(min(ends_s, delivery.until_s or ends_s)) as delivery.limit:
                await asyncio.wait([task])
        except TimeoutError:
            task.cancel()
            await asyncio.wait([task], timeout=ABANDON_S)
            why = f"callback {delivery.name} took longer than {self._limit_s:g} s"
            if delivery.until_s is not None and delivery.until_s < ends_s:
                why = f"callback {delivery.name} had not ended {OVERTIME_S:g} s after its term"
            raise TimeoutError(f"{why} and {_fate(task)}") from None
        finally:
            delivery.limit = None
            task.cancel()
        if task.cancelled():
            raise RuntimeError(f"callback {delivery.name} was cancelled")
        task.result()


def _fate(cancelled: asyncio.Future[Any]) -> str:
    """Return, as words for the error, how a callback that was cancelled has ended."""
    if not cancelled.done():
        return "was abandoned"
    error = None if cancelled.cancelled() else cancelled.exception()
    return f"runs on: {error}" if isinstance(error, RunsOn) else "was cancelled"


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def check(event: str, fn: object) -> None:
    if not callable(fn):
        raise ConfigurationError(f"{event} takes a function, not {fn!r}.", code="bad_callback")


class Callbacks:
    """Keeps the callbacks of each event, and has them called in the order they were registered.

    A callback's error goes to `on_error` only, never to the code that caused the event.
    """

    def __init__(self, facts: StoreFacts) -> None:
        self._registered: dict[str, list[Callable[..., object]]] = defaultdict(list)
        self._facts = facts
        self._forwarding = False
        self.dispatcher = Dispatcher(self.broken)

    def add(self, event: str, fn: F) -> F:
        check(event, fn)
        self._registered[event].append(fn)
        return fn

    def state_changed(self, old: LockState, new: LockState) -> None:
        for fn in self._registered[STATE_CHANGE]:
            self.dispatcher.send(fn, old, new)

    def emit(self, emit: Emit, error: Exception | None) -> None:
        if emit in TERM_ENDS:
            self.dispatcher.hurry()
        for fn in self._registered[emit.value]:
            if emit is Emit.ERROR:
                self.dispatcher.send(fn, error)
            else:
                self.dispatcher.send(fn, ends_term=emit in TERM_ENDS)

    @property
    def sent(self) -> int:
        """The number of the last callback that was sent to the dispatcher."""
        return self.dispatcher.sent

    async def delivered(self, limit_s: float = DELIVERY_LIMIT_S, *, upto: int | None = None) -> bool:
        """Wait until all callbacks sent so far have run, or those up to number `upto`.

        Returns True once they have run, False if `limit_s` passes first. Callbacks sent during the wait are not waited
        for, except `on_error` for one of the awaited callbacks. Inside a callback it returns True at once, because a
        callback cannot wait for itself.
        """
        return self.dispatcher.is_delivering_here() or await self.dispatcher.drain(limit_s, upto)

    def drop(self) -> None:
        """Cancel the running callback, drop the waiting ones, and log each by name; called at a shutdown."""
        for name in self.dispatcher.stop():
            self._facts.callback_failed(error=f"{name} had not ended when the time of the shutdown was over")

    def broken(self, error: Exception, culprit: Callable[..., object] | None = None) -> None:
        """Log a callback's error and send it to `on_error`.

        The error is only logged if an `on_error` callback raised it, or while another error is being sent to
        `on_error`.
        """
        self._facts.callback_failed(error=f"{type(error).__name__}: {error}")
        listeners = self._registered[Emit.ERROR.value]
        if culprit in listeners or self._forwarding:
            return
        # Sent by the dispatcher, because on_error may be a coroutine and has a time limit like every other callback.
        # The flag prevents endless recursion when the queue is full: each send then drops an old callback and reports
        # that here as an error.
        self._forwarding = True
        for fn in listeners:
            self.dispatcher.send(fn, error)
        self._forwarding = False


class Registers:
    """Methods that register callbacks. Each returns the function unchanged, so it works as a decorator.

    Callbacks run one at a time, in the order of the state transitions. A plain function must not block. A coroutine
    may take 10 s, but at most 1 s more once its term is over. If a callback raises or takes too long, `on_error` is
    called.
    """

    _callbacks: Callbacks

    def on_acquired(self, fn: C) -> C:
        """Register a callback, called without arguments when this process becomes the leader."""
        return self._callbacks.add(Emit.ACQUIRED.value, fn)

    def on_released(self, fn: C) -> C:
        """Register a callback, called when this process has given up leadership and the store has confirmed that."""
        return self._callbacks.add(Emit.RELEASED.value, fn)

    def on_lost(self, fn: C) -> C:
        """Register a callback, called when this process has lost its leadership, or can no longer prove it."""
        return self._callbacks.add(Emit.LOST.value, fn)

    def on_acquire_failed(self, fn: C) -> C:
        """Register a callback, called when an attempt to become the leader was refused because another holder leads."""
        return self._callbacks.add(Emit.ACQUIRE_FAILED.value, fn)

    def on_state_change(self, fn: S) -> S:
        """Register a callback, called with the old and the new state, before the other callbacks of that transition."""
        return self._callbacks.add(STATE_CHANGE, fn)

    def on_error(self, fn: E) -> E:
        """Register a callback, called with the error when the store fails, or a callback raises or takes too long."""
        return self._callbacks.add(Emit.ERROR.value, fn)

    def on_stopped(self, fn: C) -> C:
        """Register a callback, called when this leader or lock has stopped; no other callback follows."""
        return self._callbacks.add(Emit.STOPPED.value, fn)
