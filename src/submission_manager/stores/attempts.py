"""Attempts: every write is one fenced transaction of the term, judged by the rules while the row is locked."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fencehold import Term
from fencehold.ports.fence import Transaction
from submission_manager.model.contracts import Contract
from submission_manager.model.intents import ERROR_CHARS_MAX, REASON_CHARS_MAX, Exhausted, Intent, Status, WebhookStatus
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Answer, Case, Outcome, Verdict, deadline, judge
from submission_manager.ports import NotNow, Over, Recorded, Started
from submission_manager.stores import rows
from submission_manager.stores.dialect import Dialect

UNKNOWN = Outcome(Answer.ERROR, error=OUTCOME_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Locked:
    """An intent whose row is ours until the transaction ends; `now` was read after it became so."""

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
        """Of the attempt to be made, or under way."""
        return self.attempt_count + 1


@dataclass(frozen=True, slots=True)
class Marker:
    """A start on record whose end is not."""

    started_at: dt.datetime
    epoch: int
    holder_id: str

    def is_of(self, term: Term) -> bool:
        return (self.epoch, self.holder_id) == (term.epoch, term.holder_id)


class Attempts:
    """The three writes of the executor. LeaseLost: nothing was written."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._statements = dialect.statements
        self._open: set[tuple[str, int]] = set()  # Started was answered, and no record of it yet: id and epoch

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        async with self._fenced(term) as tx:
            found = await self._locked(tx, intent_id)
            if found is None:
                return NotNow(None)
            if found.status is not Status.PENDING:
                return NotNow(found.status)
            answer = await self._begin(tx, term, found, retry_delay_s)
        if isinstance(answer, Started):
            self._open = {one for one in self._open if one[1] == term.epoch} | {(intent_id, term.epoch)}
        return answer

    async def _begin(self, tx: Transaction, term: Term, found: Locked, retry_delay_s: float) -> Started | NotNow:
        if found.marker is not None and not found.marker.is_of(term):
            recorded = await self._append(tx, found, found.marker.started_at, UNKNOWN, retry_delay_s)
            return NotNow(recorded.status, recorded.due_at, recorded.over, unknown_outcome=True)
        if found.marker is not None:
            return self._begun(term, found, found.marker)
        until = deadline(found.contract, found.created_at)
        if until is not None and found.now >= until:
            verdict = Verdict(Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED)
            recorded = await self._settle(tx, found, verdict, found.attempt_count, None)
            return NotNow(recorded.status, over=recorded.over)
        if found.due_at is None or found.due_at > found.now:
            return NotNow(Status.PENDING, found.due_at)
        marker = {"epoch": term.epoch, "holder": term.holder_id, "now": self._dialect.stamp(found.now)}
        await tx.execute(self._statements["mark"], {"id": found.intent_id, **marker})
        return started_of(found, found.now)

    def _begun(self, term: Term, found: Locked, marker: Marker) -> Started | NotNow:
        """A marker of this very term: under way, or its start was committed and the answer lost, and nobody has called
        the gateway for it."""
        if (found.intent_id, term.epoch) in self._open:
            return NotNow(Status.PENDING)
        return started_of(found, marker.started_at)

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        async with self._fenced(term) as tx:
            found = await self._marked(tx, term, started)
            recorded = await self._append(tx, found, started.started_at, outcome, retry_delay_s)
        self._open.discard((started.intent_id, term.epoch))
        return recorded

    async def _marked(self, tx: Transaction, term: Term, started: Started) -> Locked:
        """The row with this attempt's marker, else LeaseLost: somebody else has counted the attempt already."""
        cursor = await tx.execute(self._statements["lock_marker"], {"id": started.intent_id})
        row = await cursor.fetchone()
        if row is not None:
            status, count, *marks, now = row
            found = Locked(
                started.intent_id, started.contract, started.payload, started.created_at, Status(status), count, None,
                self._marker(*marks), self._dialect.instant(now),
            )  # fmt: skip
            is_ours = found.marker is not None and found.marker.is_of(term)
            if found.status is Status.PENDING and is_ours and found.number == started.attempt_number:
                return found
        raise term.lost(f"the start of attempt {started.key!r} is no longer on record under this epoch")

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None:
        params = {"id": intent_id, "status": status.value, "error": rows.fitted(error, ERROR_CHARS_MAX)}
        async with self._fenced(term) as tx:
            await tx.execute(self._statements["told"], params)

    # --- inside the transaction ---

    async def _append(
        self, tx: Transaction, found: Locked, started_at: dt.datetime, outcome: Outcome, retry_delay_s: float
    ) -> Recorded:
        case = Case(found.contract, outcome, found.number, found.created_at, found.now, retry_delay_s)
        stamps = {"started_at": self._dialect.stamp(started_at), "now": self._dialect.stamp(found.now)}
        texts = {**said(outcome), "error": error_text(outcome)}
        await tx.execute(self._statements["append"], {"id": found.intent_id, "number": found.number, **stamps, **texts})
        return await self._settle(tx, found, judge(case), found.number, outcome)

    async def _settle(
        self, tx: Transaction, found: Locked, verdict: Verdict, attempt_count: int, outcome: Outcome | None
    ) -> Recorded:
        is_over = verdict.status is not Status.PENDING
        texts = said(outcome if is_over else None)
        params = {
            "id": found.intent_id, "status": verdict.status.value, "attempt_count": attempt_count,
            "next_attempt_at": self._dialect.stamp_or_none(verdict.retry_at),
            "completed_at": self._dialect.stamp(found.now) if is_over else None,
            "exhausted_reason": verdict.exhausted_reason and verdict.exhausted_reason.value,
            "now": self._dialect.stamp(found.now), **texts,
        }  # fmt: skip
        await tx.execute(self._statements["settle"], params)
        if not is_over:
            # As the column keeps it: a schedule compares what it is told now with what it reads later.
            due_at = self._dialect.instant_or_none(params["next_attempt_at"])
            return Recorded(verdict.status, found.now, due_at)
        reason = texts["outcome_reason"] if verdict.status is Status.REJECTED else None
        intent = Intent(
            found.intent_id, found.contract.submission_target, found.created_at, verdict.status, attempt_count,
            found.now, reason, params["exhausted_reason"],
        )  # fmt: skip
        return Recorded(verdict.status, found.now, over=Over(intent, found.contract.webhook))

    async def _locked(self, tx: Transaction, intent_id: str) -> Locked | None:
        cursor = await tx.execute(self._statements["lock"], {"id": intent_id})
        row = await cursor.fetchone()
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

    @asynccontextmanager
    async def _fenced(self, term: Term) -> AsyncIterator[Transaction]:
        try:
            async with term.transaction() as tx:
                yield tx
        except self._dialect.data_errors:
            raise
        except self._dialect.driver_error as error:
            raise self._dialect.fault(error) from None


def started_of(found: Locked, started_at: dt.datetime) -> Started:
    return Started(found.intent_id, found.number, found.contract, found.payload, found.created_at, started_at)


def said(outcome: Outcome | None) -> Mapping[str, str | None]:
    """What the gateway answered; an error is no answer."""
    if outcome is None:
        return {"outcome_status": None, "outcome_reason": None}
    status = None if outcome.answer is Answer.ERROR else outcome.answer.value
    return {"outcome_status": status, "outcome_reason": rows.fitted(outcome.reason, REASON_CHARS_MAX)}


def error_text(outcome: Outcome) -> str | None:
    """An error is never without one."""
    error = "error" if outcome.answer is Answer.ERROR and outcome.error is None else outcome.error
    return rows.fitted(error, ERROR_CHARS_MAX)
