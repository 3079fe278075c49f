"""Registration of callbacks with decorators, used by every leader and lock, async and sync."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencehold.model.election.election import Emit, LockState
from fencehold.model.errors import ConfigurationError
from fencehold.ports.fact_table import StoreFacts
from fencehold.runtime.core.dispatcher import Dispatcher
from fencehold.runtime.core.shared_limit import DELIVERY_LIMIT_S

Callback = Callable[[], None] | Callable[[], Awaitable[None]]
StateChangeCallback = Callable[[LockState, LockState], None] | Callable[[LockState, LockState], Awaitable[None]]
ErrorCallback = Callable[[Exception], None] | Callable[[Exception], Awaitable[None]]

C = TypeVar("C", bound=Callback)
S = TypeVar("S", bound=StateChangeCallback)
E = TypeVar("E", bound=ErrorCallback)

STATE_CHANGE = "on_state_change"
TERM_ENDS = (Emit.LOST, Emit.RELEASED)


def check(event: str, fn: object) -> None:
    if not callable(fn):
        raise ConfigurationError(f"{event} takes a function, not {fn!r}.", code="bad_callback")


class Callbacks:
    """Callbacks per event, called in the order they were registered. A callback's error goes to `on_error` only."""

    def __init__(self, facts: StoreFacts) -> None:
        self._registered: dict[str, list[Callable[..., object]]] = defaultdict(list)
        self._facts = facts
        self._forwarding = False
        self.dispatcher = Dispatcher(self.broken)

    def add(self, event: str, fn: Callable[..., object]) -> None:
        check(event, fn)
        self._registered[event].append(fn)

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
        """Wait until all callbacks sent so far have run, or those up to number `upto`. False if `limit_s` passes first.

        Callbacks sent during the wait are not waited for, except `on_error` for one of the awaited ones. Inside a
        callback it returns True at once, because a callback cannot wait for itself.
        """
        return self.dispatcher.is_delivering_here() or await self.dispatcher.drain(limit_s, upto)

    def drop(self) -> None:
        """At a shutdown: cancel the running callback, drop the waiting ones, and log each by name."""
        for name in self.dispatcher.stop():
            self._facts.callback_failed(error=f"{name} had not ended when the time of the shutdown was over")

    def broken(self, error: Exception, culprit: Callable[..., object] | None = None) -> None:
        """Log a callback's error and send it to `on_error`.

        It is only logged if it came from an `on_error` callback, or while another error is being sent there.
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
        """Called when this process becomes the leader."""
        self._callbacks.add(Emit.ACQUIRED.value, fn)
        return fn

    def on_released(self, fn: C) -> C:
        """Called when this process has given leadership up itself and the store has confirmed it."""
        self._callbacks.add(Emit.RELEASED.value, fn)
        return fn

    def on_lost(self, fn: C) -> C:
        """Called when this process has lost leadership, or can no longer prove it."""
        self._callbacks.add(Emit.LOST.value, fn)
        return fn

    def on_acquire_failed(self, fn: C) -> C:
        """Called when an attempt was refused because another holder leads."""
        self._callbacks.add(Emit.ACQUIRE_FAILED.value, fn)
        return fn

    def on_state_change(self, fn: S) -> S:
        """Called with the old and the new state, before the other callbacks of that transition."""
        self._callbacks.add(STATE_CHANGE, fn)
        return fn

    def on_error(self, fn: E) -> E:
        """Called with the error when the store fails, or when another callback raises or takes too long."""
        self._callbacks.add(Emit.ERROR.value, fn)
        return fn

    def on_stopped(self, fn: C) -> C:
        """Called when the lifecycle has ended; no callback follows."""
        self._callbacks.add(Emit.STOPPED.value, fn)
        return fn
