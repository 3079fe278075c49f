"""Base of the outbox worker and the item processor: run until stopped, from any thread."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from fencehold.ports.time_limit import TimeLimit

CLOSE_SLACK_S = 5.0  # beyond its shutdown timeout


class Stoppable(ABC):
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Work until `stop()` is called."""

    @abstractmethod
    def stop(self) -> None:
        """Begin no new work, finish what is in hand within the shutdown timeout. Safe to call from any thread."""

    @property
    @abstractmethod
    def shutdown_timeout_s(self) -> float: ...

    async def run_shielded(self) -> None:
        """Run `run` in its own task. The task continues if the caller is cancelled: call `stop()` then."""
        await asyncio.shield(asyncio.ensure_future(self.run()))

    async def wait_stopped(self) -> None:
        await self.stopped.wait()

    def _on_loop(self, call: Callable[[], Any]) -> None:
        if self._loop is None:
            call()
            return
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return  # the loop is closed: nothing is running any more


async def stop_all(running: Iterable[Stoppable]) -> None:
    """Stop all at once and wait for each, at most its shutdown timeout and a little more."""
    stopping = list(running)
    for one in stopping:
        one.stop()
    for one in stopping:
        with suppress(TimeoutError):
            async with TimeLimit(one.shutdown_timeout_s + CLOSE_SLACK_S):
                await one.stopped.wait()
