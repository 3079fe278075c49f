"""Logs failures that repeat in few lines: the start, a line now and then, and the end."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fencehold.model.election.retry import DecorrelatedJitter, RetryContext
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import LeaseFacts, OutageFacts

REMIND_EVERY_S = 60.0
OUTAGE_PAUSE_S_MAX = 2.0

LINE_EVERY_S_MIN, LINE_EVERY_S_MAX = 5.0, 60.0

LOCKED_PAUSE_S, LOCKED_PAUSE_S_MAX = 0.05, 1.0
QUICK_TRIES = 10  # open fenced transactions, and a takeover by another holder, have ended by then
LOCKED_LOG_AFTER_S = 2.0
WHY_LOCKED = (
    "another session keeps the row of this lease locked: nobody can take or renew it until that transaction ends"
)

T = TypeVar("T")


class Outage:
    """Logs that a store does not answer; the fields of `facts` name the part of the program that waits for it.

    Logs `store_unreachable` at the first failure with each error code, then once a minute; at the end `store_answers`.
    """

    def __init__(self, facts: OutageFacts, clock: Clock) -> None:
        self._facts = facts
        self._clock = clock
        self._began_s: float | None = None
        self._logged_s: dict[str, float] = {}
        self._failures = 0
        self._pauses = DecorrelatedJitter(base_s=0.1, max_s=OUTAGE_PAUSE_S_MAX)

    async def wait_for(self, ask: Callable[[], Awaitable[T]], within_s: float | None = None) -> T:
        """Call `ask` until it succeeds, and return its result. After each failure it pauses for at most 2 s.

        Raises ConfigurationError at once, because waiting does not help. Raises any other FenceholdError when the next
        try would come after `within_s`.
        """
        ends_s = math.inf if within_s is None else self._clock.now_s() + within_s
        while True:
            try:
                answer = await ask()
                self.answered()
                return answer
            except ConfigurationError:
                raise
            except FenceholdError as error:
                pause_s = self._pauses.next_delay_s(RetryContext(self._failures + 1, 0.0, error)) or OUTAGE_PAUSE_S_MAX
                if self._clock.now_s() + pause_s >= ends_s:
                    raise
                self.failed(error)
            await asyncio.sleep(pause_s)

    def failed(self, error: FenceholdError) -> None:
        """Record that a request to the store has failed and will be repeated; log that if a line is due."""
        now_s = self._clock.now_s()
        self._failures += 1
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._logged_s.get(error.code, -math.inf) < REMIND_EVERY_S:
            return
        self._logged_s[error.code] = now_s
        self._facts.store_unreachable(
            code=error.code, error=error.message, hint=error.hint, waited_s=round(now_s - self._began_s, 1),
            tries=self._failures,
        )  # fmt: skip

    def answered(self) -> None:
        """Record that the store has answered, whatever the answer: the outage is over."""
        if self._began_s is None:
            return
        began_s, self._began_s, self._failures = self._began_s, None, 0
        self._logged_s.clear()
        self._facts.store_answers(waited_s=round(self._clock.now_s() - began_s, 1))


class RenewFailures:
    """Counts the renewals of a lease that fail in a row. The log shows the first, then one per interval, and the end.

    Each failure is a fact. `not_logged` counts the failures since the last log line; each of those facts has
    `is_repeat`, and no line is logged for it.
    """

    def __init__(self, renew_every_s: float, clock: Clock) -> None:
        self._line_every_s = min(max(renew_every_s, LINE_EVERY_S_MIN), LINE_EVERY_S_MAX)
        self._clock = clock
        self._began_s = self._logged_s = -math.inf
        self._failures = self._not_logged = 0

    def failed(self) -> dict[str, Any]:
        """Record a failed renewal. Returns the fields for its fact: whether it is a repeat, and the count."""
        now_s = self._clock.now_s()
        self._failures += 1
        if self._failures == 1:
            self._began_s = now_s
        if now_s - self._logged_s < self._line_every_s:
            self._not_logged += 1
            return {"failures": self._failures, "is_repeat": True}
        self._logged_s = now_s
        not_logged, self._not_logged = self._not_logged, 0
        return {"failures": self._failures, "not_logged": not_logged}

    def ended(self) -> dict[str, Any]:
        """Record a successful renewal, or the lease's end.

        Returns the fields for that fact; empty if no renewal had failed.
        """
        failures, not_logged = self._failures, self._not_logged
        self._failures = self._not_logged = 0
        if not failures:
            return {}
        failing_s = round(self._clock.now_s() - self._began_s, 1)
        return {"failures": failures, "failing_s": failing_s, "not_logged": not_logged}


class RowLocked:
    """Tracks a lease row that another session keeps locked, and decides how long to wait before the next try.

    Logs `lease_row_locked` when the row was locked for longer than fencehold itself locks it, then once a minute.
    """

    def __init__(self, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock, self._rng = clock, rng or random.Random()
        self._since_s: float | None = None
        self._logged_s: float | None = None
        self.tries = 0  # in a row, that found it locked

    def found(self, facts: LeaseFacts) -> None:
        """Record another try that found the row locked; log that if a line is due."""
        now_s = self._clock.now_s()
        self.tries += 1
        self._since_s = now_s if self._since_s is None else self._since_s
        locked_s = now_s - self._since_s
        is_logged = self._logged_s is not None and now_s - self._logged_s < REMIND_EVERY_S
        if locked_s >= LOCKED_LOG_AFTER_S and not is_logged:
            self._logged_s = now_s
            facts.lease_row_locked(locked_s=round(locked_s, 1), tries=self.tries, why=WHY_LOCKED)

    def gone(self) -> None:
        """Record that a try did not find the row locked."""
        self._since_s = self._logged_s = None
        self.tries = 0

    def pause_s(self) -> float:
        """Return the seconds until the next try: at first very short, then longer each time, at most a second.

        They are random in part, so that several processes do not try at once.
        """
        if self.tries <= QUICK_TRIES:
            return LOCKED_PAUSE_S
        most_s: float = min(LOCKED_PAUSE_S_MAX, LOCKED_PAUSE_S * (1 << min(self.tries - QUICK_TRIES, 10)))
        return self._rng.uniform(most_s / 2, most_s)
