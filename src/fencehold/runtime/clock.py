"""The machine's clock: CLOCK_BOOTTIME, which runs on while a laptop or a virtual machine is suspended."""

from __future__ import annotations

import asyncio
import time

_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class BootClock:
    def now_s(self) -> float:
        return time.clock_gettime(_CLOCK_ID)

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        if event.is_set():
            return True
        if timeout_s is None:
            return await event.wait()
        try:
            async with asyncio.timeout(timeout_s):
                return await event.wait()
        except TimeoutError:
            return event.is_set()
