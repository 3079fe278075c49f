"""Attempts: every write is one fenced transaction of the term; the rules decide while the row is locked.

Each transaction is written once, as steps without I/O: a generator yields a statement and gets its rows back.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fencehold import Term, Uncertain
from fencehold.own_tables import OwnTables, Row, Statement, Steps
from submission_manager.answers import Answers
from submission_manager.model.contracts import Contract
from submission_manager.model.intents import (
    ERROR_CHARS_MAX,
    REASON_CHARS_MAX,
    Backlog,
    Exhausted,
    Intent,
    Status,
    WebhookStatus,
)
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Answer, Case, Outcome, Verdict, deadline, judge
from submission_manager.ports import Expired, NotNow, Over, Recorded, Started
from submission_manager.stores import rows
from submission_manager.stores.asking import Asking

UNKNOWN = Outcome(Answer.ERROR, error=OUTCOME_UNKNOWN)
#: The longest wait for a locked row; no longer, because takeovers and other writes wait for this transaction.
LOCK_WAIT_MS = 1000

T = TypeVar("T")


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
        """The number of the attempt that is to be made, or that is under way."""
        return self.attempt_count + 1


@dataclass(frozen=True, slots=True)
class Marker:
    """A recorded start of an attempt whose outcome is not recorded."""

    started_at: dt.datetime
    epoch: int
    holder_id: str

    def is_of(self, term: Term) -> bool:
        return (self.epoch, self.holder_id) == (term.epoch, term.holder_id)


class Attempts(Asking):
    """Makes the executor's reads and fenced writes (AttemptPort). If a write raises LeaseLost, nothing was written."""

    def __init__(self, tables: OwnTables, answers: Answers) -> None:
        super().__init__(tables, answers)
        self._tables = tables
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

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        return [rows.over(row) for row in await self._rows("owed", {"limit": limit}, limit_s)]

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        (row,) = await self._rows("backlog", {"late_s": late_s, "limit": rows_max}, limit_s)
        return rows.backlog(row)

    async def _fenced(self, term: Term, steps: Steps[T]) -> T:
        return await self._of(self._tables.fenced(term, steps))

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
            return left_behind((yield from self._append(found, found.marker.started_at, UNKNOWN, retry_delay_s)))
        if found.marker is not None:
            return self._begun(term, found, found.marker)
        until = deadline(found.contract, found.created_at)
        if until is not None and found.now >= until:
            verdict = Verdict(Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED)
            recorded = yield from self._settle(found, verdict, found.attempt_count, None)
            return NotNow(recorded.status, over=recorded.over)
        if found.due_at is None or found.due_at > found.now:
            return NotNow(Status.PENDING, found.due_at)
        owner = {"epoch": term.epoch, "holder": term.holder_id}
        yield Statement("mark", {"id": found.intent_id, "now": found.now, **owner})
        return started_of(found, found.now)

    def _begun(self, term: Term, found: Locked, marker: Marker) -> Started | NotNow:
        """Handle a marker that this same term has recorded.

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
        return (yield from self._recorded_before(term, started, retry_delay_s))

    def _recorded_before(self, term: Term, started: Started, retry_delay_s: float) -> Steps[Recorded | None]:
        """Look whether an earlier call recorded this attempt and only its answer was lost.

        Returns what that call would have returned, or None if nothing was recorded.
        """
        if (started.key, term.epoch) not in self._unsure:
            return None
        found = yield Statement("read", {"id": started.intent_id})
        return recorded_before(rows.intent(found[0]), started, retry_delay_s) if found else None

    def _expire(self, term: Term, ids: list[str]) -> Steps[Expired]:
        ended, unknown = yield from self._ended(term, ids)
        over = [rows.over(row) for row in ended]
        others = set(ids) - {one.intent.intent_id for one in over}
        if not others:
            return Expired(over, [], unknown)
        found = yield Statement("progress", {"ids": list(others)})
        return Expired(over, [row["intent_id"] for row in found if row["status"] == Status.PENDING], unknown)

    def _ended(self, term: Term, ids: list[str]) -> Steps[tuple[list[Row], int]]:
        """Return the rows of those intents that are over now, and how many had a start without a recorded outcome."""
        params = {"ids": ids, "epoch": term.epoch, "holder": term.holder_id, "error": OUTCOME_UNKNOWN}
        found = yield Statement("expire", params)
        return found, sum(row["unknown"] for row in found)

    def _marked(self, term: Term, started: Started) -> Steps[Locked | None]:
        """Lock and return the row with this attempt's marker; None if the attempt has been recorded already."""
        found = yield Statement("lock_marker", {"id": started.intent_id, "wait_ms": LOCK_WAIT_MS})
        if not found:
            return None
        row = found[0]
        mine = Locked(
            started.intent_id, started.contract, started.payload, started.created_at, Status(row["status"]),
            row["attempt_count"], None, marker(row), row["now"],
        )  # fmt: skip
        is_ours = mine.marker is not None and mine.marker.is_of(term)
        is_this_attempt = mine.status is Status.PENDING and is_ours and mine.number == started.attempt_number
        return mine if is_this_attempt else None

    def _append(
        self, found: Locked, started_at: dt.datetime, outcome: Outcome, retry_delay_s: float
    ) -> Steps[Recorded]:
        case = Case(found.contract, outcome, found.number, found.created_at, found.now, retry_delay_s)
        times = {"started_at": started_at, "now": found.now}
        texts = {**said(outcome), "error": error_text(outcome)}
        yield Statement("append", {"id": found.intent_id, "number": found.number, **times, **texts})
        return (yield from self._settle(found, judge(case), found.number, outcome))

    def _settle(self, found: Locked, verdict: Verdict, attempt_count: int, outcome: Outcome | None) -> Steps[Recorded]:
        is_over = verdict.status is not Status.PENDING
        texts = said(outcome if is_over else None)
        params = {
            "id": found.intent_id, "status": verdict.status.value, "attempt_count": attempt_count,
            "next_attempt_at": verdict.retry_at, "completed_at": found.now if is_over else None,
            "exhausted_reason": verdict.exhausted_reason and verdict.exhausted_reason.value, "now": found.now, **texts,
        }  # fmt: skip
        settled = yield Statement("settle", params)
        if not is_over:
            return Recorded(verdict.status, found.now, settled[0]["next_attempt_at"])
        over = ended(found, verdict.status, attempt_count, found.now, texts["outcome_reason"], verdict.exhausted_reason)
        return Recorded(verdict.status, found.now, over=over)

    def _locked(self, intent_id: str) -> Steps[Locked | None]:
        found = yield Statement("lock", {"id": intent_id, "wait_ms": LOCK_WAIT_MS})
        return locked(intent_id, found[0]) if found else None


def locked(intent_id: str, row: Row) -> Locked:
    return Locked(
        intent_id, rows.contract(row), row["payload"], row["created_at"], Status(row["status"]), row["attempt_count"],
        row["next_attempt_at"], marker(row), row["now"],
    )  # fmt: skip


def marker(row: Row) -> Marker | None:
    if row["attempt_epoch"] is None or row["attempt_holder"] is None:
        return None
    return Marker(row["attempt_started_at"], row["attempt_epoch"], row["attempt_holder"])


def _one(statement: Statement) -> Steps[None]:
    yield statement


def left_behind(recorded: Recorded) -> NotNow:
    """Return the answer to a start that found, and recorded, an attempt that an earlier term left open."""
    return NotNow(recorded.status, recorded.due_at, recorded.over, unknown_outcome=True)


def ended(
    of: Locked | Started, status: Status, attempt_count: int, at: dt.datetime, reason: str | None = None,
    exhausted_reason: str | None = None,
) -> Over:  # fmt: skip
    """Return the value for an intent that ended just now; `reason`: what the gateway said in its last answer."""
    rejected_reason = reason if status is Status.REJECTED else None
    target, webhook = of.contract.submission_target, of.contract.webhook
    intent = Intent(of.intent_id, target, of.created_at, status, attempt_count, at, rejected_reason, exhausted_reason)
    return Over(intent, webhook)


def started_of(found: Locked, started_at: dt.datetime) -> Started:
    return Started(found.intent_id, found.number, found.contract, found.payload, found.created_at, started_at)


def recorded_before(intent: Intent, started: Started, retry_delay_s: float) -> Recorded | None:
    """Return the result of a record that was committed but whose answer was lost; None if it was not committed.

    Only this attempt's own record can have counted the attempt: the fence refuses everybody else. The exact due time
    was in the lost answer; if the next start comes too early, the database returns the due time again.
    """
    if intent.attempt_count < started.attempt_number:
        return None
    if intent.status is Status.PENDING or intent.completed_at is None:
        again = dt.timedelta(seconds=retry_delay_s)
        return Recorded(Status.PENDING, started.started_at, started.started_at + again)
    return Recorded(intent.status, intent.completed_at, over=Over(intent, started.contract.webhook))


def said(outcome: Outcome | None) -> Mapping[str, str | None]:
    """Return the gateway's answer as columns; both are None after an error, because an error is not an answer."""
    if outcome is None:
        return {"outcome_status": None, "outcome_reason": None}
    status = None if outcome.answer is Answer.ERROR else outcome.answer.value
    return {"outcome_status": status, "outcome_reason": rows.fitted(outcome.reason, REASON_CHARS_MAX)}


def error_text(outcome: Outcome) -> str | None:
    """Return the text for the error column: an ERROR always has one; other answers have None."""
    error = "error" if outcome.answer is Answer.ERROR and outcome.error is None else outcome.error
    return rows.fitted(error, ERROR_CHARS_MAX)
