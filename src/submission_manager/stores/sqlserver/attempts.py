"""Attempts on SQL Server: each write of the executor is one batch, so that a frozen process never holds a lock.

So Python decides nothing between two statements. The rules are computed before, for every possible finish time of the
attempt, and the batch chooses the verdict by the database's clock.
"""

from __future__ import annotations

from typing import Any

from fencehold import Term
from fencehold.own_tables import Statement, Steps
from submission_manager.model.intents import Exhausted, Status
from submission_manager.model.outcomes import EARLIEST, OUTCOME_UNKNOWN, Case, Outcome, timetable
from submission_manager.ports import Expired, NotNow, Recorded, Started
from submission_manager.stores import rows
from submission_manager.stores.attempts import (
    UNKNOWN,
    Attempts,
    Locked,
    Marker,
    ended,
    error_text,
    left_behind,
    locked,
    said,
    started_of,
)


class SqlServerAttempts(Attempts):
    def _start(self, term: Term, intent_id: str, retry_delay_s: float) -> Steps[Started | NotNow]:
        (row,) = yield Statement("mark", {"id": intent_id})
        if row["status"] is None:
            return NotNow(None)
        found = locked(intent_id, row)
        if row["verdict"] == "started":
            return started_of(found, found.now)
        if row["verdict"] == "over":
            late = Exhausted.DEADLINE_EXCEEDED
            over = ended(found, found.status, found.attempt_count, found.now, exhausted_reason=late)
            return NotNow(found.status, over=over)
        return (yield from self._unmarked(term, found, retry_delay_s))

    def _unmarked(self, term: Term, found: Locked, retry_delay_s: float) -> Steps[Started | NotNow]:
        """Why no attempt was marked; a marker that another term left is recorded first."""
        if found.status is not Status.PENDING:
            return NotNow(found.status)
        if found.marker is None:
            return NotNow(Status.PENDING, found.due_at)
        if found.marker.is_of(term):
            return self._begun(term, found, found.marker)
        left = started_of(found, found.marker.started_at)
        recorded = yield from self._settled(left, found.marker, UNKNOWN, retry_delay_s)
        # None: the row changed between the two batches, and the next start sees the new state.
        return NotNow(Status.PENDING) if recorded is None else left_behind(recorded)

    def _record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Steps[Recorded | None]:
        own = Marker(started.started_at, term.epoch, term.holder_id)
        recorded = yield from self._settled(started, own, outcome, retry_delay_s)
        return recorded or (yield from self._recorded_before(term, started, retry_delay_s))

    def _settled(
        self, started: Started, marker: Marker, outcome: Outcome, retry_delay_s: float
    ) -> Steps[Recorded | None]:
        """Record the attempt and set the intent's new state. None if the attempt's marker is no longer there."""
        texts = said(outcome)
        params = {
            "id": started.intent_id, "number": started.attempt_number, "marker_epoch": marker.epoch,
            "marker_holder": marker.holder_id, "verdicts": _verdicts(started, outcome, retry_delay_s),
            "retry_us": round(retry_delay_s * 1_000_000), "error": error_text(outcome), **texts,
        }  # fmt: skip
        (row,) = yield Statement("settle", params, may_repeat=False)
        if row["verdict"] == "unmarked":
            return None
        status, now = Status(row["status"]), row["now"]
        if status is Status.PENDING:
            return Recorded(status, now, row["next_attempt_at"])
        over = ended(started, status, started.attempt_number, now, texts["outcome_reason"], row["exhausted_reason"])
        return Recorded(status, now, over=over)

    def _expire(self, term: Term, ids: list[str]) -> Steps[Expired]:
        found = yield Statement("expire", {"ids": ids, "error": OUTCOME_UNKNOWN})
        over = [rows.over(row) for row in found if row["is_over"]]
        pending = [row["intent_id"] for row in found if not row["is_over"] and row["status"] in (None, Status.PENDING)]
        return Expired(over, pending, sum(row["unknown"] for row in found))


def _verdicts(started: Started, outcome: Outcome, retry_delay_s: float) -> list[dict[str, Any]]:
    case = Case(started.contract, outcome, started.attempt_number, started.created_at, EARLIEST, retry_delay_s)
    return [
        {"from_at": at, "status": one.status.value, "exhausted_reason": one.exhausted_reason}
        for at, one in timetable(case)
    ]
