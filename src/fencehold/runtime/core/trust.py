"""Until when this process may act on a lease that it holds: one rule for leaders, locks, events and items.

A forked child holds no lease: every lease of its parent is invalid in the child from the start.
"""

from __future__ import annotations

import os
import threading

from fencehold.ports.clock import Clock

_generation = 0


#: Why a lease has ended, in words that several kinds of leases use.
REFUSED, DEADLINE_PASSED, STORE_CLOSED = "lease_lost", "deadline_passed", "store_closed"


def _born() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_born)


def fork_generation() -> int:
    """Return a number that differs between a parent and its forked child, which holds none of its parent's leases."""
    return _generation


class Trust:
    """Decides until when this process may act on a lease. `is_valid` goes from True to False once and never back.

    Reading `is_valid` compares clocks and does nothing else. The local deadline counts from when the request was SENT.
    The store granted the lease no earlier, so the store's lease ends no earlier than this deadline. `trusted_s` is the
    length of the lease less a margin, for the difference in speed between the two clocks and for the time that a body
    needs to stop.
    """

    __slots__ = (
        "_clock", "_generation", "_lock", "deadline_s", "ended_because", "is_given_up", "renewed_s", "started_s",
    )  # fmt: skip

    def __init__(self, clock: Clock, sent_s: float, trusted_s: float) -> None:
        self._clock = clock
        self._generation = fork_generation()
        self._lock = threading.Lock()
        self.started_s = self.renewed_s = sent_s
        self.deadline_s = self._until(sent_s, trusted_s)
        self.ended_because = ""  # empty while nothing has ended it
        self.is_given_up = False  # it ended because this process wanted so, which is no loss

    @property
    def is_valid(self) -> bool:
        return self.remaining_s > 0

    @property
    def remaining_s(self) -> float:
        """Seconds until this process stops trusting the lease; 0 once the lease is over."""
        if self.ended_because or self._generation != fork_generation():
            return 0.0
        return max(0.0, self.deadline_s - self._clock.now_s())

    @property
    def until_deadline_s(self) -> float:
        """Seconds until the local deadline, also if the lease has ended already: that long may a body take to leave."""
        return max(0.0, self.deadline_s - self._clock.now_s())

    @property
    def is_inherited(self) -> bool:
        """True in a forked child: the lease belongs to the parent process."""
        return self._generation != fork_generation()

    @property
    def why_over(self) -> str:
        """The reason why a lease that is no longer valid has ended, or will be ended."""
        return self.ended_because or DEADLINE_PASSED

    def extend(self, sent_s: float, trusted_s: float) -> bool:
        """Record that the store has renewed the lease, by a request sent at `sent_s`.

        Returns False, and changes nothing, if the lease is over in this process. If two answers come in the wrong
        order, the answer to the later request counts.
        """
        with self._lock:
            if not self.is_valid:
                return False
            if sent_s >= self.renewed_s:
                self.renewed_s, self.deadline_s = sent_s, self._until(sent_s, trusted_s)
            return True

    def end(self, reason: str, given_up: bool = False) -> bool:
        """End the lease in this process, at once and for ever. Callable on any thread.

        Returns True for the first call; later calls return False and do nothing. `given_up`: this process ends it on
        purpose.
        """
        with self._lock:
            if self.ended_because:
                return False
            self.ended_because, self.is_given_up = reason, given_up
            return True

    def _until(self, sent_s: float, trusted_s: float) -> float:
        return sent_s + trusted_s
