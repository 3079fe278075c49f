"""What runs until it is told to stop, from whichever thread: a worker of events, a processor of items."""

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
        """`run` in a task of its own, which goes on when the caller is cancelled: then call `stop()`."""
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
            return  # the loop is closed: nothing runs that could be told
