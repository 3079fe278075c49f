"""What a lock tells, in order."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Generic, TypeVar

from fencehold.runtime.lock.session_lock import SessionLock

L = TypeVar("L", bound=SessionLock[Any])

REACH_LIMIT_S = 3600.0  # virtual; a test on real time has its own limit


class Heard(Generic[L]):
    """`told` holds state changes as `old>new` and callbacks by their names."""

    def __init__(self, lock: L) -> None:
        self.lock = lock
        self.heard: list[str] = []
        self.errors: list[Exception] = []
        self._told = asyncio.Event()
        lock.on_state_change(lambda old, new: self._fact(f"{old.value}>{new.value}"))
        for name in ("acquired", "released", "lost", "acquire_failed", "stopped"):
            getattr(lock, f"on_{name}")(functools.partial(self._fact, name))
        lock.on_error(self._log_error)

    def _fact(self, what: str) -> None:
        self.heard.append(what)
        self._told.set()
        self._told = asyncio.Event()

    def _log_error(self, error: Exception) -> None:
        self.errors.append(error)
        self._fact("error")

    async def reach(self, told: str, times: int = 1) -> None:
        """Until this was told so often."""
        async with asyncio.timeout(REACH_LIMIT_S):
            while self.heard.count(told) < times:
                await self._told.wait()

    async def lead(self) -> None:
        """Start, lead, and forget what was told so far."""
        await self.lock.start()
        assert await self.lock.wait_for_leadership(50)
        await self.reach("acquired")
        self.heard.clear()

    async def end(self) -> list[str]:
        """All that was told since, once the lifecycle has ended by itself."""
        await self.reach("stopped")
        await self.lock.shutdown()
        return self.heard
