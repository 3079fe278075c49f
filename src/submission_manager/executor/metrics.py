"""The metrics of the leader's work, as an interface. An implementation must neither raise nor block."""

from __future__ import annotations

from typing import Protocol

from submission_manager.model.backlog import Backlog


class ExecutorMetrics(Protocol):
    """Times are in seconds; statuses, reasons and outcomes are the values of the database's columns."""

    def role(self, is_leader: bool, epoch: int) -> None:
        """The role has just changed; `epoch` is that of the term that began or ended."""
        ...

    def queue_depth(self, intents: int) -> None: ...

    def inflight(self, attempts: int) -> None: ...

    def queue_delay(self, seconds: float) -> None:
        """The time from when an attempt was due until its start was recorded."""
        ...

    def attempt(self, outcome_status: str, seconds: float | None) -> None:
        """One recorded attempt: `accepted`, `rejected`, `error`, or `unknown` for one an earlier leader left open.

        `seconds`: from the recorded start to the recorded outcome; None: unknown.
        """
        ...

    def gateway_call(self, gateway: str, outcome: str, seconds: float) -> None:
        """One call and its result: `accepted`, `rejected` for a reason that is final, or else `failed`."""
        ...

    def backlog(self, found: Backlog | None) -> None:
        """The count of late intents; None: the database did not answer."""
        ...

    def retry_scheduled(self) -> None: ...

    def terminal(self, status: str, seconds_since_created: float) -> None: ...

    def exhausted(self, reason: str) -> None: ...

    def target_ended(self, target: str, status: str, exhausted_reason: str | None) -> None:
        """One intent of this target is over."""
        ...

    def accepted_late(self, target: str) -> None:
        """The provider accepted an intent after its deadline: the intent is exhausted."""
        ...

    def fenced_out(self, write: str) -> None:
        """A write (`start`, `record`, `expire`, `webhook`) was not made, because leadership was lost before it."""
        ...

    def rebuilt(self, intents: int, seconds: float) -> None: ...

    def refreshed(self, rows: int, seconds: float, lag_s: float) -> None:
        """One refresh of the schedule. `lag_s`: the longest time that a row read now can have waited to be read."""
        ...

    def webhook(self, status: str, seconds: float) -> None:
        """One recorded webhook: `delivered` or `failed`."""
        ...
