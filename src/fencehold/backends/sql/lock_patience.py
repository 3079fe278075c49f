"""How long a migration waits for a lock, and how long it pauses before it tries again, so that others can work."""

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
    """Decides each wait for a lock and the pause after it: short ones first, then longer ones, until no time is left.

    A pause is at least as long as the wait before it. `waits` is called with a message while the lock is refused.
    """

    def __init__(self, what: str, waits: Waits, left_s: Callable[[], float]) -> None:
        self.wait_s = FIRST_WAIT_S
        self._what = what
        self._waits = waits
        self._left_s = left_s
        self._said_at_s: float | None = None
        self._used_by: str | None = None  # as far as known; None while no lock was refused

    @property
    def wait_ms(self) -> int:
        """The length of the next wait for a lock, in ms.

        At most half of the time left, so that there is time to find out who has the lock.
        """
        return max(1, int(min(self.wait_s, self._left_s() / 2) * 1000))

    def refused(self, used_by: str) -> float:
        """Return how many seconds to pause before the next try, after a wait for the lock has ended without it.

        `used_by` says who has the lock. Raises Unavailable (busy) if no time is left for another try.
        """
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
        """Record that all locks were granted: an error from now on has another reason, and `busy` returns None."""
        self._used_by = None

    def busy(self) -> Unavailable | None:
        """Return Unavailable (busy) if the last wait for a lock was refused; None if no lock was the problem."""
        return None if self._used_by is None else busy(self._what, self._used_by)


def busy(what: str, used_by: str) -> Unavailable:
    return Unavailable(
        f"{what} is in use{used_by}, and its locks were not to be had in time; nothing was changed.",
        hint="End that transaction, or try again at a quieter moment. Programs that use the table were not held up.",
        code="busy",
    )
