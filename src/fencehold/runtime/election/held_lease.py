"""A lease that this process holds. It becomes invalid at its local deadline, even if threads or tasks are stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fencehold.model.election.leases import Lease
from fencehold.model.election.settings import LeaderSettings
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from fencehold.runtime.core import forks
from fencehold.runtime.core.loop_liveness import LoopLiveness
from fencehold.runtime.election.renew_failures import RenewFailures
from fencehold.runtime.election.row_locked import RowLocked

RELEASED = "released"
NOT_AWAITED = "fence_not_awaited"
DEADLINE_PASSED = "deadline_passed"
IN_WORDS = {DEADLINE_PASSED: "its local deadline has passed"}
LOST = "leader_lost"
RELEASING = "leader_releasing"  # ended here; `leader_released` follows when the store confirms the release
LEFT_TO_LAPSE = "leader_left_to_lapse"  # instead of `leader_released`: nothing was sent to the store
RETRY_S_MAX = 0.5  # after a failover the new primary is found within this


class HeldLease:
    """`is_valid` goes from True to False once and never back; it compares clocks and does nothing else.

    The local deadline counts from when the request was SENT. The store granted it no earlier, so the store's lease ends
    no earlier than sent + remaining. The margin is for the difference in speed between the two clocks, and for the
    time a body needs to stop.
    """

    def __init__(
        self,
        lease: Lease,
        settings: LeaderSettings,
        sent_s: float,
        clock: Clock,
        facts: FactSink,
        liveness: LoopLiveness | None = None,
    ) -> None:
        self.settings = settings
        self.key = lease.key(settings.lease_s)
        self.lease = lease
        self.liveness = liveness
        self.renew_at_s = sent_s + min(settings.renew_every_s, lease.remaining_s / 2)
        self.ended_because: str | None = None
        self.is_given_up = False  # by this holder; not lost
        self.stall_logged = False
        self.renew_failures = RenewFailures(settings.renew_every_s, clock)
        self.row_locked = RowLocked(self.fact, clock)
        self._clock = clock
        self._facts = facts
        self._deadline_s = self._until(lease, sent_s)
        self._is_distrusted = False
        self._generation = forks.generation()
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._renewals = 0
        #: Set by the keeper: makes it renew the lease now. False if the calling thread cannot wait for the answer.
        self.renew_now: Callable[[], bool] = lambda: False
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_valid(self) -> bool:
        return self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """Seconds until this process stops trusting the lease; 0 once it is over."""
        if self.ended_because is not None or self._is_distrusted or self.is_inherited:
            return 0.0
        return max(0.0, self._deadline_s - self._clock.now_s())

    @property
    def is_inherited(self) -> bool:
        """True in a forked child: the lease belongs to the parent process."""
        return self._generation != forks.generation()

    @property
    def until_deadline_s(self) -> float:
        """Seconds until the local deadline, even if the lease has ended: how long a body may take to leave."""
        return max(0.0, self._deadline_s - self._clock.now_s())

    def extend(self, lease: Lease, sent_s: float) -> bool:
        """Record a renewal by the store. False if the lease is over here already: the renewal then has no effect."""
        with self._lock:
            in_time = self.is_valid
            if in_time:
                self._renewals += 1
                self._answered.notify_all()
                self.lease = lease
                self._deadline_s = self._until(lease, sent_s)
                self.renew_at_s = sent_s + self.settings.renew_every_s
        if in_time and lease.step_down_requested:
            self._notify_listeners()
        return in_time

    def confirmed(self, limit_s: float) -> bool | None:
        """Ask the store whether the lease is still ours, and block this thread until it answers.

        True: it was renewed just now. False: it is over. None: no answer came within the limit, or this thread cannot
        wait for one.
        """
        with self._lock:
            before = self._renewals
        if self.is_valid and self.renew_now():
            with self._lock:
                self._answered.wait_for(lambda: self.ended_because is not None or self._renewals > before, limit_s)
                if self.ended_because is None and self._renewals > before:
                    return True
        return None if self.is_valid else False

    @property
    def why_over(self) -> str:
        """For a lease that is no longer valid: the reason why it ended, or will be ended."""
        return self.ended_because or (NOT_AWAITED if self._is_distrusted else DEADLINE_PASSED)

    def distrust(self) -> None:
        """Make the lease invalid at once. The caller must have `end` called later.

        Takes no lock, because the garbage collector may call this while any lock is held.
        """
        self._is_distrusted = True

    def end(self, reason: str, event: str = LOST) -> bool:
        """End the lease at once and for ever, and log it. True for the first call; later calls do nothing."""
        if self._is_distrusted and event == LOST:
            reason = NOT_AWAITED  # the caller may have taken it for a passed deadline
        with self._lock:
            if self.ended_because is not None:
                return False
            self.ended_because = reason
            self.is_given_up = event == RELEASING
            self._answered.notify_all()
        self.fact(event, reason=reason, **self.renew_failures.ended())
        self._notify_listeners()
        return True

    def fact(self, event: str, **fields: object) -> None:
        """Record a fact about this lease, with the fields that all such facts have."""
        self._facts.fact(
            event, lease_name=self.key.name, holder_id=self.key.holder_id, lease_epoch=self.key.epoch,
            expires_at=self.lease.expires_at.isoformat(), **fields,
        )  # fmt: skip

    @property
    def step_down_requested(self) -> bool:
        return self.lease.step_down_requested

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener`, on any thread, when the lease ends or a step-down is requested; now if it has happened."""
        with self._lock:
            self._listeners.append(listener)
            happened = self.ended_because is not None or self.step_down_requested
        if happened:
            listener()

    def _notify_listeners(self) -> None:
        for listener in list(self._listeners):
            listener()

    def retry_after_s(self) -> float:
        """Seconds to wait before asking again after no answer: several tries before the deadline, but not too many."""
        return min(self.settings.renew_every_s, RETRY_S_MAX, max(0.02, self.remaining_s / 6))

    def _until(self, lease: Lease, sent_s: float) -> float:
        return sent_s + lease.remaining_s - self.settings.margin_s
