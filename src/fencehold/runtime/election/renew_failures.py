"""Renewals that fail in a row: how many of them to log.

Each failure is a fact; the log shows the first, then one per interval, and the end.
"""

from __future__ import annotations

import math
from typing import Any

from fencehold.ports.clock import Clock

LINE_EVERY_S_MIN, LINE_EVERY_S_MAX = 5.0, 60.0


class RenewFailures:
    """Allows at most one log line per renewal interval, however fast the retries follow near the deadline.

    `not_logged` counts the failures since the last line; each of those is a fact with `is_repeat`, without a line.
    """

    def __init__(self, renew_every_s: float, clock: Clock) -> None:
        self._line_every_s = min(max(renew_every_s, LINE_EVERY_S_MIN), LINE_EVERY_S_MAX)
        self._clock = clock
        self._began_s = self._logged_s = -math.inf
        self._failures = self._not_logged = 0

    def failed(self) -> dict[str, Any]:
        """Record a failure. Returns the fields for its fact."""
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
        """Record a renewal, or the lease's end. Returns the fields for that fact; none if no renewal had failed."""
        failures, not_logged = self._failures, self._not_logged
        self._failures = self._not_logged = 0
        if not failures:
            return {}
        failing_s = round(self._clock.now_s() - self._began_s, 1)
        return {"failures": failures, "failing_s": failing_s, "not_logged": not_logged}
