"""The server's clock, known to lie within a window. The client's wall clock decides nothing here.

A write by etag cannot compare anything with the server's clock; but the answer to a write carries `_ts`, the server's
time in whole seconds. If the request was sent at `sent_s` and answered at `answered_s` (our CLOCK_BOOTTIME, which
never goes back and runs through suspend), then at any later instant the server's clock lies within

    [ _ts + (now_s - answered_s) - drift  ..  _ts + 1 s + (now_s - sent_s) + drift ]

and a rule may be applied only if it holds at both ends: another's lease has lapsed only if it has at the lower, ours is
live only if it is at the upper (see `judgement`). Exact: exclusivity, by the etag. Late by up to the window's width, a
second and a round trip: takeovers, and the refusal of a renewal just before expiry. docs/decisions/0008.

Readings are per logical partition: each physical partition is another machine, with a clock of its own.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)  # `_ts` is cut to whole seconds
AGE_S_MAX = 30.0  # also how long a step of the server's clock can go unnoticed
DRIFT_PER_S = 0.001  # both clocks together; twice what NTP slews at most
PARTITIONS_MAX = 10_000

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_s() -> float:
    return time.clock_gettime(_BOOT)


@dataclass(frozen=True, slots=True)
class Window:
    """The server's clock is neither before `earliest` nor after `latest`."""

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


class ServerClock:
    def __init__(self, now_s: Callable[[], float] = boot_s) -> None:
        self.now_s = now_s
        self._readings: dict[str, _Reading] = {}

    def note(self, partition: str, ts_s: float, sent_s: float) -> None:
        """A write to this partition, sent at `sent_s`, was just answered with this `_ts`."""
        if len(self._readings) >= PARTITIONS_MAX:
            self._readings.clear()
        self._readings[partition] = _Reading(EPOCH_START + dt.timedelta(seconds=ts_s), sent_s, self.now_s())

    def window(self, partition: str) -> Window | None:
        """None: no reading, or too old a one; a write will bring the next."""
        reading = self._readings.get(partition)
        now_s = self.now_s()
        if reading is None or now_s - reading.sent_s > AGE_S_MAX:
            return None
        drift_s = (now_s - reading.sent_s) * DRIFT_PER_S
        since_answer, since_request = now_s - reading.answered_s, now_s - reading.sent_s
        return Window(
            earliest=reading.ts + dt.timedelta(seconds=since_answer - drift_s),
            latest=reading.ts + SECOND + dt.timedelta(seconds=since_request + drift_s),
        )
