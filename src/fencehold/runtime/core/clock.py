"""The machine's boot clock, and waiting for the first of several things."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from fencehold.ports.clock import boot_s
from fencehold.ports.time_limit import TimeLimit


class BootClock:
    """A clock that never goes back, and keeps counting while the machine is suspended."""

    def now_s(self) -> float:
        return boot_s()

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        if event.is_set():
            return True
        if timeout_s is None:
            return await event.wait()
        try:
            async with TimeLimit(timeout_s):
                return await event.wait()
        except TimeoutError:
            return event.is_set()


async def first_done(*works: Coroutine[Any, Any, Any]) -> Sequence[asyncio.Future[Any]]:
    """Run all the coroutines until the first has ended, then cancel the others. Returns a future for each, in order."""
    waits = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return waits
