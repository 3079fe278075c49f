"""How long a migration waits for a lock, and how long it lets others go on before it asks again."""

from __future__ import annotations

import time
from collections.abc import Callable

from fencehold.model.errors import Unavailable
from fencehold.ports.schema import Waits

FIRST_WAIT_S = 0.1
#: No lock is waited for longer. Whoever comes later queues behind the wait, renewals of leases among them.
LOCK_WAIT_S_MAX = 1.0
PAUSE_S_MIN = 0.2
SAY_EVERY_S = 5.0


class LockPatience:
    """Short waits first, then longer ones, each followed by a pause as long as the wait was, until no time is left."""

    def __init__(self, what: str, waits: Waits, left_s: Callable[[], float]) -> None:
        self.wait_s = FIRST_WAIT_S
        self._what = what
        self._waits = waits
        self._left_s = left_s
        self._said_at_s: float | None = None

    @property
    def wait_ms(self) -> int:
        """No more than half of the time that is left, so that some remains to say who was in the way."""
        return max(1, int(min(self.wait_s, self._left_s() / 2) * 1000))

    def refused(self, used_by: str) -> float:
        """The lock was not to be had: the pause until the next try. Raises Unavailable (busy) if there is no time."""
        pause_s = max(PAUSE_S_MIN, self.wait_s)
        if self._left_s() <= pause_s:
            raise busy(self._what, used_by)
        now_s = time.monotonic()
        if self._said_at_s is None or now_s - self._said_at_s >= SAY_EVERY_S:
            self._said_at_s = now_s
            self._waits(f"{self._what} is in use{used_by}; trying again")
        self.wait_s = min(LOCK_WAIT_S_MAX, self.wait_s * 2)
        return pause_s


def busy(what: str, used_by: str) -> Unavailable:
    return Unavailable(
        f"{what} is in use{used_by}, and its locks were not to be had in time; nothing was changed.",
        hint="End that transaction, or try again at a quieter moment. Programs that use the table were not held up.",
        code="busy",
    )
