"""The machine's boot clock. It keeps counting while a laptop or a virtual machine is suspended."""

from __future__ import annotations

import asyncio

from fencehold.ports.clock import boot_s
from fencehold.ports.time_limit import TimeLimit


class BootClock:
    """Never goes back, and keeps counting while the machine is suspended."""

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
