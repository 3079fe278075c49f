"""Base of the outbox worker and the item processor: run until stopped, from any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Stoppable:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = asyncio.Event()

    async def run(self) -> None:
        """Until it is told to stop."""

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
