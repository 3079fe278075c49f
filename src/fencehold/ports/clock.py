"""Time and waiting, passed in, so that the same loops run on a machine and in a simulation."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Protocol


def _machine_clock() -> Callable[[], float]:
    """Linux: CLOCK_BOOTTIME. macOS: CLOCK_MONOTONIC, which counts sleep there. Windows has neither."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if (clock_id := getattr(time, name, None)) is not None:
            return functools.partial(getattr(time, "clock_gettime"), clock_id)  # noqa: B009 - not there on Windows
    return time.monotonic


#: Seconds on a clock of this machine that never goes back, is the same in all its processes, and counts sleep.
boot_s = _machine_clock()


class Clock(Protocol):
    """Time and waiting as an argument, so that a test can put its own in their place."""

    def now_s(self) -> float:
        """Seconds on a clock that never goes back and runs through suspend."""
        ...

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        """True as soon as the event is set, False when the time is over."""
        ...
