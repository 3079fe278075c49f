"""Callbacks, in transition order, one at a time, each with a limit: a hung one delays later callbacks, nothing else."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

CALLBACK_LIMIT_S = 10.0
WAITING_MAX = 1000

Broken = Callable[[Exception, Callable[..., Any]], None]


class Dispatcher:
    """Runs in the caller's loop. A callback that raises or overruns is reported to `broken`; the next one goes on."""

    def __init__(self, broken: Broken, limit_s: float = CALLBACK_LIMIT_S) -> None:
        self._broken = broken
        self._limit_s = limit_s
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="fencehold-callbacks")

    def send(self, callback: Callable[..., Any], *args: Any) -> None:
        if len(self._waiting) >= WAITING_MAX:
            dropped, _ = self._waiting.popleft()
            self._broken(
                RuntimeError(f"more than {WAITING_MAX} callbacks are waiting: the oldest was dropped"), dropped
            )
        self._waiting.append((callback, args))
        self._idle.clear()
        self._arrived.set()

    async def drain(self, limit_s: float) -> None:
        """Wait until all that was sent is delivered, within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return

    def is_delivering_here(self) -> bool:
        """Whether the caller runs inside a callback, and so cannot wait for all of them."""
        return self._task is not None and asyncio.current_task() is self._task

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            while self._waiting:
                callback, args = self._waiting.popleft()
                await self._deliver(callback, args)
            self._arrived.clear()
            self._idle.set()

    async def _deliver(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            result = callback(*args)
            if inspect.isawaitable(result):
                async with asyncio.timeout(self._limit_s):
                    await result
        except TimeoutError:
            name = getattr(callback, "__qualname__", repr(callback))
            late = TimeoutError(f"callback {name} took longer than {self._limit_s:g} s and was cancelled")
            self._broken(late, callback)
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the loop must go on
            self._broken(error, callback)
