"""How long a migration waits for a lock, and how long it then pauses so that others can work before it tries again."""

from __future__ import annotations

import time
from collections.abc import Callable

from fencehold.model.errors import Unavailable
from fencehold.ports.schema import Waits

FIRST_WAIT_S = 0.1
#: The longest wait for one lock. Later requests, renewals of leases among them, queue behind our wait.
LOCK_WAIT_S_MAX = 1.0
PAUSE_S_MIN = 0.2
SAY_EVERY_S = 5.0


class LockPatience:
    """Short waits first, then longer ones, each followed by a pause at least as long, until no time is left."""

    def __init__(self, what: str, waits: Waits, left_s: Callable[[], float]) -> None:
        self.wait_s = FIRST_WAIT_S
        self._what = what
        self._waits = waits
        self._left_s = left_s
        self._said_at_s: float | None = None
        self._used_by: str | None = None  # as far as known; None while no lock was refused

    @property
    def wait_ms(self) -> int:
        """The next wait in ms: at most half of the time left, so that some remains to find out who has the lock."""
        return max(1, int(min(self.wait_s, self._left_s() / 2) * 1000))

    def refused(self, used_by: str) -> float:
        """Return the pause before the next try for the lock. Raises Unavailable (busy) if no time is left for it."""
        self._used_by = used_by
        pause_s = max(PAUSE_S_MIN, self.wait_s)
        if self._left_s() <= pause_s:
            raise busy(self._what, used_by)
        now_s = time.monotonic()
        if self._said_at_s is None or now_s - self._said_at_s >= SAY_EVERY_S:
            self._said_at_s = now_s
            self._waits(f"{self._what} is in use{used_by}; trying again")
        self.wait_s = min(LOCK_WAIT_S_MAX, self.wait_s * 2)
        return pause_s

    def ends(self) -> None:
        """Record that all locks were granted: if something fails from now on, a lock is not the reason."""
        self._used_by = None

    def busy(self) -> Unavailable | None:
        """Return the error for an `init` that was given up while it waited for locks; None if it was not."""
        return None if self._used_by is None else busy(self._what, self._used_by)


def busy(what: str, used_by: str) -> Unavailable:
    return Unavailable(
        f"{what} is in use{used_by}, and its locks were not to be had in time; nothing was changed.",
        hint="End that transaction, or try again at a quieter moment. Programs that use the table were not held up.",
        code="busy",
    )
