"""What the leader's work counts and times; whoever shows it implements these, and none of them may raise or block."""

from __future__ import annotations

from typing import Protocol

from submission_manager.model.backlog import Backlog


class ExecutorMetrics(Protocol):
    """Times are seconds; statuses, reasons and outcomes are the words of the database's columns."""

    def role(self, is_leader: bool, epoch: int) -> None:
        """Changed just now; `epoch` is that of the term that began or ended."""
        ...

    def queue_depth(self, intents: int) -> None: ...

    def inflight(self, attempts: int) -> None: ...

    def queue_delay(self, seconds: float) -> None:
        """From when an attempt was due to when its start was on record."""
        ...

    def attempt(self, outcome_status: str, seconds: float | None) -> None:
        """One recorded attempt: `accepted`, `rejected`, `error`, or `unknown` for one an earlier leader left open.

        `seconds`: from the start on record to the record of the outcome; None: nobody knows.
        """
        ...

    def gateway_call(self, gateway: str, outcome: str, seconds: float) -> None:
        """One call and what it came to: `accepted`, `rejected` for a reason that is final, or else `failed`."""
        ...

    def backlog(self, found: Backlog | None) -> None:
        """What waits beyond its time; None: the database did not say."""
        ...

    def retry_scheduled(self) -> None: ...

    def terminal(self, status: str, seconds_since_created: float) -> None: ...

    def exhausted(self, reason: str) -> None: ...

    def target_ended(self, target: str, status: str, exhausted_reason: str | None) -> None:
        """One intent of this target is over."""
        ...

    def accepted_late(self, target: str) -> None:
        """The provider took it, and its deadline had passed: it is exhausted."""
        ...

    def fenced_out(self, write: str) -> None:
        """A write (`start`, `record`, `expire`, `webhook`) that was not made, because leadership was lost before it."""
        ...

    def rebuilt(self, intents: int, seconds: float) -> None: ...

    def refreshed(self, rows: int, seconds: float, lag_s: float) -> None:
        """`lag_s`: the longest that a row read just now can have waited to be seen."""
        ...

    def webhook(self, status: str, seconds: float) -> None:
        """`delivered` or `failed`, as recorded."""
        ...


class NoMetrics:
    """For whoever does not count."""

    def role(self, is_leader: bool, epoch: int) -> None:
        return None

    def queue_depth(self, intents: int) -> None:
        return None

    def inflight(self, attempts: int) -> None:
        return None

    def queue_delay(self, seconds: float) -> None:
        return None

    def attempt(self, outcome_status: str, seconds: float | None) -> None:
        return None

    def gateway_call(self, gateway: str, outcome: str, seconds: float) -> None:
        return None

    def backlog(self, found: Backlog | None) -> None:
        return None

    def retry_scheduled(self) -> None:
        return None

    def terminal(self, status: str, seconds_since_created: float) -> None:
        return None

    def exhausted(self, reason: str) -> None:
        return None

    def target_ended(self, target: str, status: str, exhausted_reason: str | None) -> None:
        return None

    def accepted_late(self, target: str) -> None:
        return None

    def fenced_out(self, write: str) -> None:
        return None

    def rebuilt(self, intents: int, seconds: float) -> None:
        return None

    def refreshed(self, rows: int, seconds: float, lag_s: float) -> None:
        return None

    def webhook(self, status: str, seconds: float) -> None:
        return None
