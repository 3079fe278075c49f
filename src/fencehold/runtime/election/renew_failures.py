"""What is said of renewals that fail in a row: each is a fact; the log has the first, one now and then, and the end."""

from __future__ import annotations

import math
from typing import Any

from fencehold.ports.clock import Clock

LINE_EVERY_S_MIN, LINE_EVERY_S_MAX = 5.0, 60.0


class RenewFailures:
    """At most one line for each interval between renewals, however quickly retries come as the deadline nears.

    `not_logged` is how many failures there were since the line before; a fact that `is_repeat` is one of them.
    """

    def __init__(self, renew_every_s: float, clock: Clock) -> None:
        self._line_every_s = min(max(renew_every_s, LINE_EVERY_S_MIN), LINE_EVERY_S_MAX)
        self._clock = clock
        self._began_s = self._logged_s = -math.inf
        self._failures = self._not_logged = 0

    def failed(self) -> dict[str, Any]:
        """Once more; the fields that the fact gets."""
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
        """Renewed, or over: the fields that say what ended with it; none if nothing had failed."""
        failures, not_logged = self._failures, self._not_logged
        self._failures = self._not_logged = 0
        if not failures:
            return {}
        failing_s = round(self._clock.now_s() - self._began_s, 1)
        return {"failures": failures, "failing_s": failing_s, "not_logged": not_logged}
