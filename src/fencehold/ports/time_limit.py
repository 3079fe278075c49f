"""Two kinds of time limit: one that ends a block of async code, and one that is only read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType


class TimeLimit:
    """A time limit for a block: `async with TimeLimit(seconds):` raises TimeoutError when they are over.

    None: no limit. It also works in a task that is being cancelled. asyncio.timeout() of Python 3.11.0 to 3.11.2 raises
    CancelledError instead, if the task was cancelled before the block began: code that cleans up would take the end of
    its limit for a cancellation. asyncio.wait_for() of Python 3.11 loses a cancel that comes together with the result:
    code that waits for the task's end would wait for ever.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._timeout = asyncio.timeout(limit_s)
        self._task: asyncio.Task[object] | None = None
        self._cancelled_before = 0

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        if self._task is not None:
            self._cancelled_before = self._task.cancelling()
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)
        if not (isinstance(error, asyncio.CancelledError) and self._timeout.expired() and self._task is not None):
            return
        if self._task.cancelling() <= self._cancelled_before:
            raise TimeoutError from error


def fixed(limit_s: float) -> Callable[[], float]:
    """Return a function that returns how many seconds are left of a limit that starts now."""
    ends_s = time.monotonic() + limit_s
    return lambda: ends_s - time.monotonic()
