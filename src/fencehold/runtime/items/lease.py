"""The lease on one item, as this process sees it: when it stops trusting itself, whatever any thread is doing."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Callable

from fencehold.model.errors import LeaseLost
from fencehold.model.items.items import ItemKey
from fencehold.model.items.settings import ItemSettings
from fencehold.ports.clock import Clock
from fencehold.runtime.core import forks
from fencehold.runtime.core.heartbeat import REFUSED, TOO_LATE
from fencehold.runtime.core.loop_liveness import LoopLiveness

LEFT, DELETED, BROKEN = "left", "deleted", "broken"
SUPERSEDED, STORE_CLOSED, GRANTED_TOO_LATE = "superseded", "store_closed", "granted_too_late"
DONE = frozenset({LEFT, DELETED})  # how a body ends its own lease: no reason to stop it
MEANT = frozenset({*DONE, BROKEN, SUPERSEDED, STORE_CLOSED})  # this process wanted it so: not told as a loss
GONE = frozenset({DELETED, BROKEN, SUPERSEDED, STORE_CLOSED, REFUSED})  # nothing is left that could be given back


class ItemLease:
    """`is_valid` goes from True to False once and never back; it compares clocks and does nothing else.

    Trust counts from when the request was SENT, so it ends before the store lets another holder in; the margin covers
    the difference in rate between the two clocks.
    """

    def __init__(
        self,
        kind: str,
        key: ItemKey,
        until: dt.datetime,
        sent_s: float,
        settings: ItemSettings,
        *,
        clock: Clock,
        log_lost: Callable[[ItemLease], None],
    ) -> None:
        self.kind, self.key, self.settings = kind, key, settings
        self.expires_at = until
        self.started_s = self.renewed_s = sent_s
        self.deadline_s = sent_s + settings.trusted_s
        self.max_s = math.inf  # how long its body may take
        self.lost = ""  # why it is over; empty while it is not
        self.liveness: LoopLiveness | None = None
        self.stall_logged = False
        self.on_end: Callable[[], None] | None = None
        self._clock, self._log_lost = clock, log_lost
        self.generation = forks.generation()
        self._mutex = threading.Lock()

    @property
    def is_valid(self) -> bool:
        return self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """Seconds until this process stops trusting the lease; 0 once it is over."""
        if self.lost or self.generation != forks.generation():
            return 0.0
        return max(0.0, self.deadline_s - self._clock.now_s())

    def extend(self, until: dt.datetime, sent_s: float, trusted_s: float) -> bool:
        """Renewed: True, unless the answer came after the deadline, which is a loss."""
        with self._mutex:
            in_time = self.is_valid
            if in_time:
                self.expires_at = until
                self.renewed_s = sent_s
                self.deadline_s = max(self.deadline_s, sent_s + trusted_s)
        return in_time

    def end(self, reason: str) -> bool:
        """Over at once and for ever; True for the first to say so. Any thread."""
        with self._mutex:
            if self.lost:
                return False
            self.lost = reason
        if reason not in MEANT:
            self._log_lost(self)
        if self.on_end is not None:
            self.on_end()
        return True

    def lose(self, reason: str) -> None:
        self.end(reason)

    def check(self) -> None:
        """Raise LeaseLost unless the lease is valid at this instant."""
        if not self.is_valid:
            self.end(TOO_LATE)
            raise self.error()

    def refused(self, reason: str) -> LeaseLost:
        """The store said no: end it and return the error to raise."""
        self.end(REFUSED)
        return self.error(reason)

    def error(self, reason: str = "") -> LeaseLost:
        key, why = self.key, " ".join([self.lost, f"({reason})" if reason else ""]).strip()
        return LeaseLost(
            f"Item {key.id!r} of kind {self.kind!r} is no longer held under token {key.token}: {why}.",
            hint="Whatever was not saved by now is not saved. Acquire it anew and look at its state first.",
            item_id=key.id, token=key.token,
        )  # fmt: skip
