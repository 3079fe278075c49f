"""Callbacks for programs without an event loop; each runs on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencehold.model.election.election import Emit, LockState
from fencehold.runtime.core.callbacks import STATE_CHANGE, Callbacks, F, RunsOn, check, name_of

C = TypeVar("C", bound=Callable[[], None])
S = TypeVar("S", bound=Callable[[LockState, LockState], None])
E = TypeVar("E", bound=Callable[[Exception], None])

RUNS_ON = "a thread cannot be stopped, so later callbacks may run beside it"


def on_thread(fn: Callable[..., object]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return a coroutine function of the same name as `fn` that runs `fn` on a thread and waits for it.

    If the coroutine is cancelled after the thread has begun, it raises RunsOn, because a thread cannot be stopped. If
    the thread has not begun, `fn` is never called.
    """

    async def run(*args: Any) -> None:
        begun = False

        def call() -> None:
            nonlocal begun
            begun = True
            fn(*args)

        try:
            await asyncio.to_thread(call)
        except asyncio.CancelledError:
            if begun:
                raise RunsOn(RUNS_ON) from None
            raise

    run.__qualname__ = name_of(fn)
    return run


class OnThreads(Callbacks):
    """Registers plain functions as callbacks that run on threads: such a callback may block and may call the leader."""

    def __init__(self, inner: Callbacks) -> None:
        self._inner = inner

    def add(self, event: str, fn: F) -> F:
        check(event, fn)
        self._inner.add(event, on_thread(fn))
        return fn


class PlainRegisters:
    """Methods that register callbacks. Each returns the function unchanged, so it works as a decorator.

    Like `Registers` of the async leader, but for plain functions only: a coroutine would never be awaited.
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
