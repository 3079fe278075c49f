"""A leader's lease that this process holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from fencehold.model.election.leases import Lease
from fencehold.model.election.settings import LeaderSettings
from fencehold.ports.clock import Clock
from fencehold.ports.fact_table import LeaseFacts
from fencehold.ports.facts import FactSink
from fencehold.runtime.core.renewals import Kept
from fencehold.runtime.core.repeated_failures import RenewFailures, RowLocked
from fencehold.runtime.core.trust import DEADLINE_PASSED

RELEASED = "released"
NOT_AWAITED = "fence_not_awaited"
IN_WORDS = {DEADLINE_PASSED: "its local deadline has passed"}
RETRY_S_MAX = 0.5  # after a failover the new primary is found within this


class Bodies(Protocol):
    """The code that runs under a lease."""

    async def left(self, limit_s: float) -> bool:
        """Wait until nothing of it is running any more. False if something still is after `limit_s`."""
        ...


class NoBodies:
    async def left(self, limit_s: float) -> bool:
        return True


class HeldLease(Kept):
    """Its end is logged, and whoever listens is called: the bodies that run under it, and the election."""

    def __init__(self, lease: Lease, settings: LeaderSettings, sent_s: float, clock: Clock, facts: FactSink) -> None:
        self.settings = settings
        super().__init__(clock, sent_s, lease.remaining_s - settings.margin_s)
        self.key = lease.key(settings.lease_s)
        self.lease = lease
        self.renew_at_s = sent_s + min(settings.renew_every_s, lease.remaining_s / 2)
        self.renew_failures = RenewFailures(settings.renew_every_s, clock)
        self.row_locked = RowLocked(clock)
        self._sink = facts
        self._is_distrusted = False
        self._confirmed = threading.Condition(self._lock)
        self._renewals = 0
        self.bodies: Bodies = NoBodies()
        #: Set by the keeper: makes it renew the lease now. False if the calling thread cannot wait for the answer.
        self.renew_now: Callable[[], bool] = lambda: False
        self._listeners: list[Callable[[], None]] = []

    @property
    def remaining_s(self) -> float:
        return 0.0 if self._is_distrusted else super().remaining_s

    def renewed(self, lease: Lease, sent_s: float) -> bool:
        """Record a renewal by the store. False if the lease is over here already: the renewal then has no effect."""
        if not self.extend(sent_s, lease.remaining_s - self.settings.margin_s):
            return False
        self.lease = lease
        self.renew_at_s = sent_s + self.settings.renew_every_s
        with self._lock:
            self._renewals += 1
            self._confirmed.notify_all()
        if lease.step_down_requested:
            self._notify_listeners()
        return True

    def confirmed(self, limit_s: float) -> bool | None:
        """Ask the store whether the lease is still ours, and block this thread until it answers.

        True: it was renewed just now. False: it is over. None: no answer came within the limit, or this thread cannot
        wait for one.
        """
        with self._lock:
            before = self._renewals
        if self.is_valid and self.renew_now():
            with self._lock:
                self._confirmed.wait_for(lambda: bool(self.ended_because) or self._renewals > before, limit_s)
                if not self.ended_because and self._renewals > before:
                    return True
        return None if self.is_valid else False

    @property
    def why_over(self) -> str:
        return NOT_AWAITED if self._is_distrusted and not self.ended_because else super().why_over

    def distrust(self) -> None:
        """Make the lease invalid at once. The caller must have `end` called later.

        Takes no lock, because the garbage collector may call this while any lock is held.
        """
        self._is_distrusted = True

    def end(self, reason: str, given_up: bool = False) -> bool:
        """End the lease at once and for ever, and log it. True for the first call; later calls do nothing."""
        if self._is_distrusted and not given_up:
            reason = NOT_AWAITED  # the caller may have taken it for a passed deadline
        if not super().end(reason, given_up):
            return False
        with self._lock:
            self._confirmed.notify_all()
        log_end = self.facts.leader_releasing if given_up else self.facts.leader_lost
        log_end(reason=reason, **self.renew_failures.ended())
        self._notify_listeners()
        return True

    @property
    def facts(self) -> LeaseFacts:
        """Facts about this lease, as it is now."""
        key = self.key
        return LeaseFacts(self._sink, key.name, key.holder_id, key.epoch, self.lease.expires_at.isoformat())

    @property
    def step_down_requested(self) -> bool:
        return self.lease.step_down_requested

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener`, on any thread, when the lease ends or a step-down is requested; now if it has happened."""
        with self._lock:
            self._listeners.append(listener)
            happened = self.ended_because or self.step_down_requested
        if happened:
            listener()

    def _notify_listeners(self) -> None:
        for listener in list(self._listeners):
            listener()
