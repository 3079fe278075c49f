"""Attempts: every write is one fenced transaction of the term; the rules decide while the row is locked.

Each transaction is written once, as steps without I/O: a generator yields a statement and gets its row back.
PostgreSQL runs them statement by statement, SQLite in one call on its thread.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fencehold import FenceholdError, Term, Uncertain
from submission_manager.model.contracts import Contract
from submission_manager.model.intents import ERROR_CHARS_MAX, REASON_CHARS_MAX, Exhausted, Intent, Status, WebhookStatus
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Answer, Case, Outcome, Verdict, deadline, judge
from submission_manager.ports import Expired, NotNow, Over, Recorded, Started
from submission_manager.stores import rows
from submission_manager.stores.dialect import Dialect

UNKNOWN = Outcome(Answer.ERROR, error=OUTCOME_UNKNOWN)
#: The longest wait for a locked row; no longer, because takeovers and other writes wait for this transaction.
LOCK_WAIT_MS = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that a step yields.

    `has_row`: the step gets its first row, or None if there is none. `has_rows`: the step gets all rows.
    """

    name: str
    params: Mapping[str, Any]
    has_row: bool = False
    has_rows: bool = False


Steps = Generator[Statement, Any, T]


@dataclass(frozen=True, slots=True)
class Locked:
    """An intent whose row we have locked until the transaction ends; `now` was read after the lock was taken."""

    intent_id: str
    contract: Contract
    payload: bytes | None
    created_at: dt.datetime
    status: Status
    attempt_count: int
    due_at: dt.datetime | None
    marker: Marker | None
    now: dt.datetime

    @property
    def number(self) -> int:
        """The number of the attempt to be made, or under way."""
        return self.attempt_count + 1


@dataclass(frozen=True, slots=True)
class Marker:
    """A recorded start of an attempt whose outcome is not recorded."""

    started_at: dt.datetime
    epoch: int
    holder_id: str

    def is_of(self, term: Term) -> bool:
        return (self.epoch, self.holder_id) == (term.epoch, term.holder_id)


class Attempts:
    """The four writes of the executor. If one raises LeaseLost, nothing was written."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._statements = dialect.statements
        self._open: set[tuple[str, int]] = set()  # Started was returned, no outcome recorded yet: (id, epoch)
        self._unsure: set[tuple[str, int]] = set()  # a record was sent, perhaps committed: (key, epoch)

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        answer = await self._fenced(term, self._start(term, intent_id, retry_delay_s))
        if isinstance(answer, Started):
            self._open = {one for one in self._open if one[1] == term.epoch} | {(intent_id, term.epoch)}
        return answer

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        try:
            recorded = await self._fenced(term, self._record(term, started, outcome, retry_delay_s))
        except (Uncertain, asyncio.CancelledError):
            self._unsure = {one for one in self._unsure if one[1] == term.epoch} | {(started.key, term.epoch)}
            raise
        self._unsure.discard((started.key, term.epoch))
        if recorded is None:
            raise term.lost(f"the start of attempt {started.key!r} is no longer on record under this epoch")
        self._open.discard((started.intent_id, term.epoch))
        return recorded

    async def expire(self, term: Term, intent_ids: Sequence[str]) -> Expired:
        # These have an attempt under way after all: returned as pending, so that the caller tries again.
        open_ids = [one for one in intent_ids if (one, term.epoch) in self._open]
        ids = [one for one in intent_ids if one not in open_ids]
        if not ids:
            return Expired([], open_ids)
        expired = await self._fenced(term, self._expire(term, ids))
        return replace(expired, pending=expired.pending + open_ids)

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None:
        texts = {"status": status.value, "error": rows.fitted(error, ERROR_CHARS_MAX)}
        await self._fenced(term, _one(Statement("told", {"id": intent_id, **texts, "wait_ms": LOCK_WAIT_MS})))

    async def _fenced(self, term: Term, steps: Steps[T]) -> T:
        """Run the steps in one fenced transaction and return their result."""
        limit_s = 0.0
        try:
            async with term.transaction() as tx:
                limit_s = getattr(tx, "limit_s", 0.0)
                answer: Any = None
                while True:
                    try:
                        asked = steps.send(answer)
                    except StopIteration as end:
                        return end.value  # type: ignore[no-any-return]
                    cursor = await tx.execute(self._statements[asked.name], asked.params)
                    answer = await cursor.fetchone() if asked.has_row else None
                    if asked.has_rows:
                        answer = await cursor.fetchall()
        except self._dialect.data_errors:
            raise
        except self._dialect.driver_error as error:
            raise self._fault(error, limit_s) from None

    def _fault(self, error: Any, limit_s: float) -> FenceholdError:
        """The driver's error as ours. `limit_s`: the limit that the transaction sets for each of its statements."""
        return self._dialect.fault(error)

    # --- the steps of each transaction ---

    def _start(self, term: Term, intent_id: str, retry_delay_s: float) -> Steps[Started | NotNow]:
        found = yield from self._locked(intent_id)
        if found is None:
            return NotNow(None)
        if found.status is not Status.PENDING:
            return NotNow(found.status)
        return (yield from self._begin(term, found, retry_delay_s))

    def _begin(self, term: Term, found: Locked, retry_delay_s: float) -> Steps[Started | NotNow]:
        if found.marker is not None and not found.marker.is_of(term):
            recorded = yield from self._append(found, found.marker.started_at, UNKNOWN, retry_delay_s)
            return NotNow(recorded.status, recorded.due_at, recorded.over, unknown_outcome=True)
        if found.marker is not None:
            return self._begun(term, found, found.marker)
        until = deadline(found.contract, found.created_at)
        if until is not None and found.now >= until:
            verdict = Verdict(Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED)
            recorded = yield from self._settle(found, verdict, found.attempt_count, None)
            return NotNow(recorded.status, over=recorded.over)
        if found.due_at is None or found.due_at > found.now:
            return NotNow(Status.PENDING, found.due_at)
        marker = {"epoch": term.epoch, "holder": term.holder_id, "now": self._dialect.stamp(found.now)}
        yield Statement("mark", {"id": found.intent_id, **marker})
        return started_of(found, found.now)

    def _begun(self, term: Term, found: Locked, marker: Marker) -> Started | NotNow:
        """Handle a marker of this very term.

        Either its attempt is under way, or its start was committed and the answer was lost: then nobody has called the
        gateway for it, and the attempt is Started now.
        """
        if (found.intent_id, term.epoch) in self._open:
            return NotNow(Status.PENDING)
        return started_of(found, marker.started_at)

    def _record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Steps[Recorded | None]:
        found = yield from self._marked(term, started)
        if found is not None:
            return (yield from self._append(found, started.started_at, outcome, retry_delay_s))
        if (started.key, term.epoch) not in self._unsure:
            return None
        row = yield Statement("read", {"id": started.intent_id}, has_row=True)
        return None if row is None else recorded_before(rows.intent(row, self._dialect), started, retry_delay_s)

    def _expire(self, term: Term, ids: list[str]) -> Steps[Expired]:
        ended, unknown = yield from self._ended(term, ids)
        over = [rows.over(row, self._dialect) for row in ended]
        others = set(ids) - {one.intent.intent_id for one in over}
        if not others:
            return Expired(over, [], unknown)
        found = yield Statement("progress", {"ids": self._listed(others)}, has_rows=True)
        return Expired(over, [row[0] for row in found if row[1] == Status.PENDING], unknown)

    def _ended(self, term: Term, ids: Iterable[str]) -> Steps[tuple[list[rows.Row], int]]:
        """The rows of those that are over now, and how many of them had a start without a recorded outcome."""
        params = {"ids": self._listed(ids), "epoch": term.epoch, "holder": term.holder_id, "error": OUTCOME_UNKNOWN}
        found = yield Statement("expire", params, has_rows=True)
        return [row[:-1] for row in found], sum(row[-1] for row in found)

    def _listed(self, ids: Iterable[str]) -> Any:
        return list(ids)

    def _marked(self, term: Term, started: Started) -> Steps[Locked | None]:
        """The row with this attempt's marker; None if the attempt has been recorded already."""
        row = yield Statement("lock_marker", {"id": started.intent_id, "wait_ms": LOCK_WAIT_MS}, has_row=True)
        if row is None:
            return None
        status, count, *marks, now = row
        found = Locked(
            started.intent_id, started.contract, started.payload, started.created_at, Status(status), count, None,
            self._marker(*marks), self._dialect.instant(now),
        )  # fmt: skip
        is_ours = found.marker is not None and found.marker.is_of(term)
        is_this_attempt = found.status is Status.PENDING and is_ours and found.number == started.attempt_number
        return found if is_this_attempt else None

    def _append(
        self, found: Locked, started_at: dt.datetime, outcome: Outcome, retry_delay_s: float
    ) -> Steps[Recorded]:
        case = Case(found.contract, outcome, found.number, found.created_at, found.now, retry_delay_s)
        stamps = {"started_at": self._dialect.stamp(started_at), "now": self._dialect.stamp(found.now)}
        texts = {**said(outcome), "error": error_text(outcome)}
        yield Statement("append", {"id": found.intent_id, "number": found.number, **stamps, **texts})
        return (yield from self._settle(found, judge(case), found.number, outcome))

    def _settle(self, found: Locked, verdict: Verdict, attempt_count: int, outcome: Outcome | None) -> Steps[Recorded]:
        is_over = verdict.status is not Status.PENDING
        texts = said(outcome if is_over else None)
        params = {
            "id": found.intent_id, "status": verdict.status.value, "attempt_count": attempt_count,
            "next_attempt_at": self._dialect.stamp_or_none(verdict.retry_at),
            "completed_at": self._dialect.stamp(found.now) if is_over else None,
            "exhausted_reason": verdict.exhausted_reason and verdict.exhausted_reason.value,
            "now": self._dialect.stamp(found.now), **texts,
        }  # fmt: skip
        yield Statement("settle", params)
        if not is_over:
            # Rounded as the column stores it: the schedule compares this time with the one it reads later.
            due_at = self._dialect.instant_or_none(params["next_attempt_at"])
            return Recorded(verdict.status, found.now, due_at)
        reason = texts["outcome_reason"] if verdict.status is Status.REJECTED else None
        intent = Intent(
            found.intent_id, found.contract.submission_target, found.created_at, verdict.status, attempt_count,
            found.now, reason, params["exhausted_reason"],
        )  # fmt: skip
        return Recorded(verdict.status, found.now, over=Over(intent, found.contract.webhook))

    def _locked(self, intent_id: str) -> Steps[Locked | None]:
        row = yield Statement("lock", {"id": intent_id, "wait_ms": LOCK_WAIT_MS}, has_row=True)
        if row is None:
            return None
        payload, *contract, target, created_at, status, count, due_at, started_at, epoch, holder, now = row
        time = self._dialect.instant
        return Locked(
            intent_id, rows.contract(tuple(contract), target), payload, time(created_at), Status(status), count,
            self._dialect.instant_or_none(due_at), self._marker(started_at, epoch, holder), time(now),
        )  # fmt: skip

    def _marker(self, started_at: Any, epoch: int | None, holder: str | None) -> Marker | None:
        if epoch is None or holder is None:
            return None
        return Marker(self._dialect.instant(started_at), epoch, holder)


def _one(statement: Statement) -> Steps[None]:
    yield statement


def started_of(found: Locked, started_at: dt.datetime) -> Started:
    return Started(found.intent_id, found.number, found.contract, found.payload, found.created_at, started_at)


def recorded_before(intent: Intent, started: Started, retry_delay_s: float) -> Recorded | None:
    """The result of a record that was committed but whose answer was lost; None if it was not committed.

    Only this record can have counted the attempt: the fence refuses everybody else. The exact due time was in the lost
    answer; if the next start comes too early, the database returns the due time again.
    """
    if intent.attempt_count < started.attempt_number:
        return None
    if intent.status is Status.PENDING or intent.completed_at is None:
        again = dt.timedelta(seconds=retry_delay_s)
        return Recorded(Status.PENDING, started.started_at, started.started_at + again)
    return Recorded(intent.status, intent.completed_at, over=Over(intent, started.contract.webhook))


def said(outcome: Outcome | None) -> Mapping[str, str | None]:
    """The gateway's answer as columns; both are None after an error, because an error is not an answer."""
    if outcome is None:
        return {"outcome_status": None, "outcome_reason": None}
    status = None if outcome.answer is Answer.ERROR else outcome.answer.value
    return {"outcome_status": status, "outcome_reason": rows.fitted(outcome.reason, REASON_CHARS_MAX)}


def error_text(outcome: Outcome) -> str | None:
    """The text of the error column: an ERROR always has one."""
    error = "error" if outcome.answer is Answer.ERROR and outcome.error is None else outcome.error
    return rows.fitted(error, ERROR_CHARS_MAX)
