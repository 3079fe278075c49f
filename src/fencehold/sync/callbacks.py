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
    """Wrap `fn` in a coroutine function of the same name that runs it on a thread.

    If that is cancelled after the thread has begun, it raises RunsOn, because a thread cannot be stopped. If the thread
    has not begun, it never will.
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
    """Registers callbacks that run on threads: they may block and may call the leader."""

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
        """Called when this process becomes the leader."""
        return self._callbacks.add(Emit.ACQUIRED.value, fn)

    def on_released(self, fn: C) -> C:
        """Called when this process has given leadership up itself and the store has confirmed it."""
        return self._callbacks.add(Emit.RELEASED.value, fn)

    def on_lost(self, fn: C) -> C:
        """Called when this process has lost leadership, or can no longer prove it."""
        return self._callbacks.add(Emit.LOST.value, fn)

    def on_acquire_failed(self, fn: C) -> C:
        """Called when an attempt was refused because another holder leads."""
        return self._callbacks.add(Emit.ACQUIRE_FAILED.value, fn)

    def on_state_change(self, fn: S) -> S:
        """Called with the old and the new state, before the other callbacks of that transition."""
        return self._callbacks.add(STATE_CHANGE, fn)

    def on_error(self, fn: E) -> E:
        """Called with the error when the store fails, or when another callback raises or takes too long."""
        return self._callbacks.add(Emit.ERROR.value, fn)

    def on_stopped(self, fn: C) -> C:
        """Called when the lifecycle has ended; no callback follows."""
        return self._callbacks.add(Emit.STOPPED.value, fn)
