"""How long an attempt takes at present, and after which time it is too late to start one; no I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

MEAN_PART = 1 / 8  # weight of the newest attempt in the mean
SPREAD_PART = 1 / 4  # and in the mean deviation
SPREADS = 4  # mean deviations above the mean: only few attempts take longer than that
LANES_MAX = 1000


@dataclass(frozen=True, slots=True)
class CallTime:
    """How long attempts at one gateway take: their mean time and its mean deviation.

    The newest attempts weigh the most.
    """

    mean_us: float
    spread_us: float

    def then(self, took_us: int) -> CallTime:
        off_us = took_us - self.mean_us
        return CallTime(
            self.mean_us + MEAN_PART * off_us, self.spread_us + SPREAD_PART * (abs(off_us) - self.spread_us)
        )

    @property
    def expected_us(self) -> int:
        """The time in microseconds that hardly any attempt exceeds."""
        return int(self.mean_us + SPREADS * self.spread_us)


class CallTimes:
    """The expected time of an attempt for each gateway, from answered attempts. Keeps at most LANES_MAX gateways.

    The time is 0 for an unknown gateway.
    """

    def __init__(self) -> None:
        self._of: dict[str, CallTime] = {}

    def took(self, lane: str, took_us: int) -> None:
        known = self._of.pop(lane, None)
        self._of[lane] = CallTime(took_us, took_us / 2) if known is None else known.then(took_us)
        if len(self._of) > LANES_MAX:
            del self._of[next(iter(self._of))]  # the one whose last call is the longest ago

    def expected_us(self, lane: str) -> int:
        known = self._of.get(lane)
        return 0 if known is None else known.expected_us


def latest_start_us(due_us: int, deadline_us: int, expected_us: int) -> int:
    """Return the time from which on an attempt is started too late: it is not expected to end before the deadline.

    The result is never before half of the time from due to deadline is over. So a slow gateway is still called, and is
    seen when it becomes fast again; and slow attempts of other targets never leave a target without attempts.
    """
    return deadline_us - min(expected_us, max(0, deadline_us - due_us) // 2)
