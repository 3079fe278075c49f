"""The guardian's kernel calls: a clock that runs during suspend, adopting orphans, dying with the parent."""

from __future__ import annotations

import ctypes
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def now_s() -> float:
    """Return the seconds on the same clock as ports/clock.py; this package must not import that file."""
    return time.clock_gettime(time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC)


def become_subreaper() -> None:
    """Make orphaned descendants of this process its children (Linux only)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the kernel send this process SIGKILL when its parent ends (Linux only)."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wake_with_parent() -> None:
    """Let the kernel send this process SIGCONT when its parent ends (Linux only).

    A stopped process would not notice the end of its parent.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
