"""A lease row that another session keeps locked: how long to wait before the next try, and when to log it."""

from __future__ import annotations

import random
from collections.abc import Callable

from fencehold.ports.clock import Clock

PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
QUICK_TRIES = 10  # open fenced transactions, and a takeover by another holder, have ended by then
LOG_AFTER_S = 2.0
REMIND_EVERY_S = 60.0
WHY = "another session keeps the row of this lease locked: nobody can take or renew it until that transaction ends"


class RowLocked:
    """Logs `lease_row_locked` when the row was locked for longer than fencehold itself locks it, then once a minute.

    `fact` takes the fact's name and fields, and adds which lease it is.
    """

    def __init__(self, fact: Callable[..., None], clock: Clock, rng: random.Random | None = None) -> None:
        self._fact, self._clock, self._rng = fact, clock, rng or random.Random()
        self._since_s: float | None = None
        self._logged_s: float | None = None
        self.tries = 0  # in a row, that found it locked

    def found(self) -> None:
        """Record another try that found the row locked; log it if it is time to."""
        now_s = self._clock.now_s()
        self.tries += 1
        self._since_s = now_s if self._since_s is None else self._since_s
        locked_s = now_s - self._since_s
        is_logged = self._logged_s is not None and now_s - self._logged_s < REMIND_EVERY_S
        if locked_s >= LOG_AFTER_S and not is_logged:
            self._logged_s = now_s
            self._fact("lease_row_locked", locked_s=round(locked_s, 1), tries=self.tries, why=WHY)

    def gone(self) -> None:
        """Record that a try did not find the row locked."""
        self._since_s = self._logged_s = None
        self.tries = 0

    def pause_s(self) -> float:
        """Seconds until the next try: at first very short, then longer each time, with jitter, at most a second."""
        if self.tries <= QUICK_TRIES:
            return PAUSE_S
        most_s: float = min(PAUSE_S_MAX, PAUSE_S * (1 << min(self.tries - QUICK_TRIES, 10)))
        return self._rng.uniform(most_s / 2, most_s)
