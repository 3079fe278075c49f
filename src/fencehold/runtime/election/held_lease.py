"""A lease this process holds: when it stops trusting itself, whatever any thread or await is doing."""

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
RELEASING = "leader_releasing"  # over here; `leader_released` follows when the store has taken it back
LEFT_TO_LAPSE = "leader_left_to_lapse"  # instead of `leader_released`: the store was told nothing
RETRY_S_MAX = 0.5  # after a failover the new primary is found within this


class HeldLease:
    """`is_valid` goes from True to False once and never back; it compares clocks and does nothing else.

    Trust counts from when the request was SENT: the store granted it no earlier, so its lease ends no earlier than
    sent + remaining. The margin covers the difference in rate between the two clocks and the time a body needs to stop.
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
        self.is_given_up = False  # by us, and not lost
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
        #: Set by the keeper: have the lease renewed now. False where nobody could wait for the answer.
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
        """This is a forked child, and the lease is its parent's."""
        return self._generation != forks.generation()

    @property
    def until_deadline_s(self) -> float:
        """Seconds until the local deadline, ended or not: as long as a body may take to leave."""
        return max(0.0, self._deadline_s - self._clock.now_s())

    def extend(self, lease: Lease, sent_s: float) -> bool:
        """Renewed: True, unless the answer came after the deadline, which is a loss."""
        with self._lock:
            in_time = self.is_valid
            if in_time:
                self._renewals += 1
                self._answered.notify_all()
                self.lease = lease
                self._deadline_s = self._until(lease, sent_s)
                self.renew_at_s = sent_s + self.settings.renew_every_s
        if in_time and lease.step_down_requested:
            self._fact()
        return in_time

    def confirmed(self, limit_s: float) -> bool | None:
        """Ask the store whether the lease is still ours, and block this thread until it answers.

        True: it was renewed just now. False: it is over. None: no answer within the limit, or none can be waited for.
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
        """Of a lease that is not valid any more: the reason that it ends, or has ended, with."""
        return self.ended_because or (NOT_AWAITED if self._is_distrusted else DEADLINE_PASSED)

    def distrust(self) -> None:
        """No longer valid, as of now. Takes no lock, for whoever cannot know which are held; `end` is to follow."""
        self._is_distrusted = True

    def end(self, reason: str, event: str = LOST) -> bool:
        """Over, for this reason, at once and for ever; True for the first to say so, which is also who logs it."""
        if self._is_distrusted and event == LOST:
            reason = NOT_AWAITED  # whoever saw it first took it for a deadline
        with self._lock:
            if self.ended_because is not None:
                return False
            self.ended_because = reason
            self.is_given_up = event == RELEASING
            self._answered.notify_all()
        self.fact(event, reason=reason, **self.renew_failures.ended())
        self._fact()
        return True

    def fact(self, event: str, **fields: object) -> None:
        """A fact about this lease, with the fields every such fact has."""
        self._facts.fact(
            event, lease_name=self.key.name, holder_id=self.key.holder_id, lease_epoch=self.key.epoch,
            expires_at=self.lease.expires_at.isoformat(), **fields,
        )  # fmt: skip

    @property
    def step_down_requested(self) -> bool:
        return self.lease.step_down_requested

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called, on any thread, when the lease ends or we are asked to step down; at once if that has happened."""
        with self._lock:
            self._listeners.append(listener)
            happened = self.ended_because is not None or self.step_down_requested
        if happened:
            listener()

    def _fact(self) -> None:
        for listener in list(self._listeners):
            listener()

    def retry_after_s(self) -> float:
        """How soon to ask again after no answer: several times before the deadline, but not in a storm."""
        return min(self.settings.renew_every_s, RETRY_S_MAX, max(0.02, self.remaining_s / 6))

    def _until(self, lease: Lease, sent_s: float) -> float:
        return sent_s + lease.remaining_s - self.settings.margin_s
