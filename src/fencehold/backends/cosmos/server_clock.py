"""Computes a window that the server's clock lies within. The client's wall clock decides nothing here.

A write by etag cannot compare anything with the server's clock. But the answer to a write carries `_ts`, the server's
time in whole seconds. If the request was sent at `sent_s` and answered at `answered_s` (our CLOCK_BOOTTIME, which never
goes back and runs through suspend), then at any later instant the server's clock lies within

    [ _ts + (now_s - answered_s) - drift  ..  _ts + 1 s + (now_s - sent_s) + drift ]

and a rule may be applied only if it holds at both ends: another's lease has lapsed only if it has at the lower end,
ours is live only if it is at the upper end (see `judged` in leases.py). Exclusivity is exact, by the etag. Takeovers,
and the refusal of a renewal just before expiry, may be late by the window's width: a second and a round trip. See
docs/decisions/0008.

Readings are per logical partition: each physical partition is another machine, with a clock of its own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from fencehold.ports.clock import boot_s

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)  # `_ts` is cut to whole seconds
MILLISECOND = dt.timedelta(milliseconds=1)
AGE_S_MAX = 30.0  # also how long a step of the server's clock can go unnoticed
DRIFT_PER_S = 0.001  # both clocks together; twice what NTP slews at most
PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """A range of times: the server's clock shows neither less than `earliest` nor more than `latest`."""

    earliest: dt.datetime
    latest: dt.datetime

    @property
    def width(self) -> dt.timedelta:
        return self.latest - self.earliest


@dataclass(frozen=True, slots=True)
class _Reading:
    ts: dt.datetime
    sent_s: float
    answered_s: float

    def earliest(self, now_s: float) -> dt.datetime:
        return self.ts + dt.timedelta(seconds=now_s - self.answered_s - self._drift_s(now_s))

    def latest(self, now_s: float) -> dt.datetime:
        return self.ts + SECOND + dt.timedelta(seconds=now_s - self.sent_s + self._drift_s(now_s))

    def _drift_s(self, now_s: float) -> float:
        return (now_s - self.sent_s) * DRIFT_PER_S


class ServerClock:
    def __init__(self, now_s: Callable[[], float] = boot_s) -> None:
        self.now_s = now_s
        self._readings: dict[str, _Reading] = {}
        self._tightest: dict[str, _Reading] = {}  # of all readings the one with the latest `earliest`
        self._stamped: dict[str, dt.datetime] = {}

    def note(self, partition: str, ts_s: float, sent_s: float) -> None:
        """Record a reading of the server's clock from the answer to a write, which must have arrived just now.

        `ts_s` is the `_ts` of the answer; `sent_s` is when the write was sent. Each partition has readings of its own.
        """
        for known in (self._readings, self._tightest, self._stamped):
            if len(known) >= PARTITIONS_MAX:
                known.clear()
        now_s = self.now_s()
        reading = _Reading(EPOCH_START + dt.timedelta(seconds=ts_s), sent_s, now_s)
        before = self._tightest.get(partition)
        self._readings[partition] = reading
        if before is None or not reading.earliest(now_s) < before.earliest(now_s) <= reading.latest(now_s):
            self._tightest[partition] = reading  # later, or the server's clock was set back meanwhile

    def window(self, partition: str) -> Window | None:
        """Return the window for this partition. None if there is no reading of its clock, or only one that is too old.

        The answer to the next write brings a new reading.
        """
        reading = self._readings.get(partition)
        now_s = self.now_s()
        if reading is None or now_s - reading.sent_s > AGE_S_MAX:
            return None
        return Window(reading.earliest(now_s), reading.latest(now_s))

    def stamp(self, partition: str, window: Window) -> dt.datetime:
        """Return a time within this window, later than the last one returned for this partition.

        It is later unless the server's clock was set back. The time only puts changes in order; no rule may be decided
        by it. It uses all readings so far: the more writes, the nearer it is to the server's true time. An old reading
        is good enough for an order. For a decision it is not, because it would hide a small step of the server's clock.
        """
        tightest = self._tightest.get(partition)
        after = self._stamped.get(partition, EPOCH_START) + MILLISECOND
        likely = tightest.earliest(self.now_s()) if tightest is not None else window.earliest
        self._stamped[partition] = min(max(window.earliest, likely, after), window.latest)
        return self._stamped[partition]
