"""Time and waiting as arguments, so that the same loops run on a real machine and in a simulation."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Protocol


def _machine_clock() -> Callable[[], float]:
    """Return this system's clock in seconds that does not go back and counts time asleep too.

    It is CLOCK_BOOTTIME on Linux, and CLOCK_MONOTONIC on macOS, which counts sleep there. Windows has neither clock.
    """
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        if (clock_id := getattr(time, name, None)) is not None:
            return functools.partial(getattr(time, "clock_gettime"), clock_id)  # noqa: B009 - not there on Windows
    return time.monotonic


#: Seconds on a clock of this machine that never goes back, is the same in all its processes, and counts sleep.
boot_s = _machine_clock()


class Clock(Protocol):
    """A clock and a way to wait, passed to what needs them, so that a test can pass its own."""

    def now_s(self) -> float:
        """Return the seconds of a clock that never goes back and counts the time that the machine is suspended."""
        ...

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        """Wait for the event. Return True as soon as it is set, False when the time is over (None: no limit)."""
        ...
