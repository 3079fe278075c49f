"""Time and waiting, passed in, so that the same loops run on a machine and in a simulation."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds on a clock that never goes back and runs through suspend."""
        ...

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        """True as soon as the event is set, False when the time is over."""
        ...
