"""What the guardian asks of the kernel: a clock that runs through suspend, orphans, death with the parent."""

from __future__ import annotations

import ctypes
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def now_s() -> float:
    """Seconds on the clock that ports/clock.py chooses too; this package imports nothing of fencehold."""
    return time.clock_gettime(time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC)


def become_subreaper() -> None:
    """Orphans below this process become its children, where the kernel knows such a thing (Linux)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """SIGKILL for this process when its parent ends (Linux)."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wake_with_parent() -> None:
    """SIGCONT for this process when its parent ends (Linux): stopped, it would not notice."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
