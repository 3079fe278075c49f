"""Callbacks of a program without an event loop, each on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fencehold.runtime.dispatcher import RunsOn, name_of

RUNS_ON = "a thread cannot be stopped, so later callbacks may run beside it"


def on_thread(fn: Callable[..., object]) -> Callable[..., Coroutine[Any, Any, None]]:
    """As a coroutine function of the same name that runs it on a thread.

    Cancelled, it says so if the thread has begun: that cannot be stopped. A thread that has not begun never will.
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
