"""The row of a lease that somebody keeps locked: how long to wait before the next try, and what is said of it."""

from __future__ import annotations

import random
from collections.abc import Callable

from fencehold.ports.clock import Clock

PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
QUICK_TRIES = 10  # fenced transactions under way, and another's takeover, are over by then
TELL_AFTER_S = 2.0
REMIND_EVERY_S = 60.0
WHY = "another session keeps the row of this lease locked: nobody can take or renew it until that transaction ends"


class RowLocked:
    """Tells `lease_row_locked` once it has been so for longer than fencehold itself takes, and then once a minute.

    `tell` takes the fact's name and its fields; it adds whose lease it is.
    """

    def __init__(self, fact: Callable[..., None], clock: Clock, rng: random.Random | None = None) -> None:
        self._fact, self._clock, self._rng = fact, clock, rng or random.Random()
        self._since_s: float | None = None
        self._told_s: float | None = None
        self.tries = 0  # in a row, to which the answer was that it is locked

    def found(self) -> None:
        """It is locked, once more."""
        now_s = self._clock.now_s()
        self.tries += 1
        self._since_s = now_s if self._since_s is None else self._since_s
        locked_s = now_s - self._since_s
        is_told = self._told_s is not None and now_s - self._told_s < REMIND_EVERY_S
        if locked_s >= TELL_AFTER_S and not is_told:
            self._told_s = now_s
            self._fact("lease_row_locked", locked_s=round(locked_s, 1), tries=self.tries, why=WHY)

    def gone(self) -> None:
        """The store has answered."""
        self._since_s = self._told_s = None
        self.tries = 0

    def pause_s(self) -> float:
        """At first so short that nobody notices; then longer and longer, spread, and never beyond a second."""
        if self.tries <= QUICK_TRIES:
            return PAUSE_S
        most_s: float = min(PAUSE_S_MAX, PAUSE_S * (1 << min(self.tries - QUICK_TRIES, 10)))
        return self._rng.uniform(most_s / 2, most_s)
