"""Attempts on SQL Server: each write of the executor is one batch, so that a frozen process never holds a lock.

So Python decides nothing between two statements. The rules are computed before, for every possible finish time of the
attempt, and the batch chooses the verdict by the database's clock.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencehold import Term, Unavailable, Uncertain
from fencehold.backends.sqlserver.params import NO_TEXT, instant_text, listed, microseconds, rows_json
from submission_manager.model.backlog import Backlog
from submission_manager.model.contracts import Contract
from submission_manager.model.intents import ERROR_CHARS_MAX, Exhausted, Intent, Status, WebhookStatus
from submission_manager.model.outcomes import EARLIEST, OUTCOME_UNKNOWN, Case, Outcome, timetable
from submission_manager.ports import Expired, NotNow, Over, Recorded, Started
from submission_manager.stores import rows
from submission_manager.stores.attempts import UNKNOWN, Locked, Marker, error_text, recorded_before, said, started_of
from submission_manager.stores.dialect import Dialect
from submission_manager.stores.sqlserver.pool import Pool

WRITE_LIMIT_S = 10.0  # a batch that waits for a row makes a takeover wait at most this long
LOCK_WAIT_SHARE = 0.5  # of the limit: the rest is for the answer that the row is locked


@dataclass(frozen=True, slots=True)
class Made:
    """An attempt to be recorded, and the marker that must still be there when it is recorded."""

    intent_id: str
    number: int
    contract: Contract
    created_at: dt.datetime
    marker: Marker


class SqlServerAttempts:
    """The four writes of the executor. If one raises LeaseLost, nothing was written."""

    def __init__(self, writes: Pool, reads: Pool, dialect: Dialect) -> None:
        self._writes = writes
        self._reads = reads
        self._dialect = dialect
        self._open: set[tuple[str, int]] = set()  # Started was returned, no outcome recorded yet: (id, epoch)
        self._unsure: set[tuple[str, int]] = set()  # a record was sent, perhaps committed: (key, epoch)

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        verdict, *row = await self._fenced(term, "mark", {"id": intent_id})
        found = self._found(intent_id, tuple(row))
        if found is None:
            return NotNow(None)
        answer = await self._begun(term, verdict, found, retry_delay_s)
        if isinstance(answer, Started):
            self._open = {one for one in self._open if one[1] == term.epoch} | {(intent_id, term.epoch)}
        return answer

    async def _begun(self, term: Term, verdict: str, found: Locked, retry_delay_s: float) -> Started | NotNow:
        if verdict == "started":
            return started_of(found, found.now)
        if found.status is not Status.PENDING:
            return NotNow(found.status, over=_too_late(found) if verdict == "over" else None)
        if found.marker is None:
            return NotNow(Status.PENDING, found.due_at)
        if not found.marker.is_of(term):
            return await self._left_behind(term, found, found.marker, retry_delay_s)
        # The marker is of this very term: either the attempt is under way, or its start was committed and the answer
        # was lost. Then nobody has called the gateway for it.
        if (found.intent_id, term.epoch) in self._open:
            return NotNow(Status.PENDING)
        return started_of(found, found.marker.started_at)

    async def _left_behind(self, term: Term, found: Locked, marker: Marker, retry_delay_s: float) -> NotNow:
        made = Made(found.intent_id, found.number, found.contract, found.created_at, marker)
        recorded = await self._settle(term, made, UNKNOWN, retry_delay_s)
        if recorded is None:  # the row changed between the two batches: the next start sees the new state
            return NotNow(Status.PENDING)
        return NotNow(recorded.status, recorded.due_at, recorded.over, unknown_outcome=True)

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        marker = Marker(started.started_at, term.epoch, term.holder_id)
        made = Made(started.intent_id, started.attempt_number, started.contract, started.created_at, marker)
        try:
            recorded = await self._settle(term, made, outcome, retry_delay_s)
        except (Uncertain, asyncio.CancelledError):
            self._unsure = {one for one in self._unsure if one[1] == term.epoch} | {(started.key, term.epoch)}
            raise
        if recorded is None and (started.key, term.epoch) in self._unsure:
            found = await self._reads.run("read", {"id": started.intent_id}, WRITE_LIMIT_S)
            recorded = recorded_before(rows.intent(found[0], self._dialect), started, retry_delay_s) if found else None
        self._unsure.discard((started.key, term.epoch))
        if recorded is None:
            raise term.lost(f"the start of attempt {started.key!r} is no longer on record under this epoch")
        self._open.discard((started.intent_id, term.epoch))
        return recorded

    async def expire(self, term: Term, intent_ids: Sequence[str]) -> Expired:
        open_ids = [one for one in intent_ids if (one, term.epoch) in self._open]  # an attempt is under way after all
        ids = [one for one in intent_ids if one not in open_ids]
        if not ids:
            return Expired([], open_ids)
        params = {"ids": rows_json({"id": listed(one)} for one in ids), "error": OUTCOME_UNKNOWN}
        found = await self._fenced_rows(term, "expire", params)
        over = [rows.over(row[3:], self._dialect) for row in found if row[1]]
        pending = [row[3] for row in found if not row[1] and row[6] in (None, Status.PENDING)]
        return Expired(over, pending + open_ids, sum(row[2] for row in found))

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None:
        params = {"id": intent_id, "status": status.value, "error": rows.fitted(error, ERROR_CHARS_MAX) or NO_TEXT}
        await self._fenced(term, "told", params)

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        return [rows.over(row, self._dialect) for row in await self._reads.run("owed", {"limit": limit}, limit_s)]

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        (row,) = await self._reads.run("backlog", {"late_s": late_s, "limit": rows_max}, limit_s)
        return rows.backlog(row, self._dialect)

    # --- one batch each ---

    async def _settle(self, term: Term, made: Made, outcome: Outcome, retry_delay_s: float) -> Recorded | None:
        """Record the attempt and set the intent's new state. None if the attempt's marker is no longer there."""
        texts = {"error": error_text(outcome), **said(outcome)}
        params = {
            "id": made.intent_id, "number": made.number, "marker_epoch": made.marker.epoch,
            "marker_holder": made.marker.holder_id, "verdicts": _verdicts(made, outcome, retry_delay_s),
            "retry_us": microseconds(retry_delay_s), **{name: text or NO_TEXT for name, text in texts.items()},
        }  # fmt: skip
        verdict, now, status, exhausted_reason, due_at = await self._fenced(term, "settle", params)
        if verdict == "unmarked":
            return None
        ended, finished_at = Status(status), self._dialect.instant(now)
        if ended is Status.PENDING:
            return Recorded(ended, finished_at, self._dialect.instant(due_at))
        intent = Intent(
            made.intent_id, made.contract.submission_target, made.created_at, ended, made.number, finished_at,
            texts["outcome_reason"] if ended is Status.REJECTED else None, exhausted_reason,
        )  # fmt: skip
        return Recorded(ended, finished_at, over=Over(intent, made.contract.webhook))

    async def _fenced(self, term: Term, name: str, params: Mapping[str, Any]) -> rows.Row:
        (row,) = await self._fenced_rows(term, name, params)
        return row

    async def _fenced_rows(self, term: Term, name: str, params: Mapping[str, Any]) -> list[rows.Row]:
        """The rows of one fenced batch.

        Raises Unavailable (`locked`) if another session kept the row or the lease locked, LeaseLost if the fence
        refused.
        """
        term.check()
        limit_s = min(term.remaining_s, WRITE_LIMIT_S)
        fence = {
            "name": term.name, "holder": term.holder_id, "epoch": term.epoch,
            "wait_ms": max(1, int(limit_s * 1000 * LOCK_WAIT_SHARE)),
        }  # fmt: skip
        try:
            # Every batch but a record may run twice: a repeated start finds its own marker.
            found = await self._writes.run(name, {**params, **fence}, limit_s, may_repeat=name != "settle")
        except Unavailable as error:
            if error.code == "busy":
                raise Unavailable(error.message, hint=error.hint, code="locked") from None
            raise
        match found[0][0]:
            case "lost":
                raise term.lost("the store refused the fence: it has expired or another holds it; nothing was written")
            case "busy":
                message = f"Another session held the lock of lease {term.name!r}; nothing was written."
                raise Unavailable(message, code="locked")
        return found

    def _found(self, intent_id: str, row: rows.Row) -> Locked | None:
        now, status, count, due_at, started_at, epoch, holder, payload, *contract, target, created_at = row
        if status is None:
            return None
        time = self._dialect.instant
        marker = None if epoch is None or holder is None else Marker(time(started_at), epoch, holder)
        return Locked(
            intent_id, rows.contract(tuple(contract), target), payload, time(created_at), Status(status), count,
            self._dialect.instant_or_none(due_at), marker, time(now),
        )  # fmt: skip


def _too_late(found: Locked) -> Over:
    """The end of an intent whose deadline has passed, and for which no attempt was made now."""
    intent = Intent(
        found.intent_id, found.contract.submission_target, found.created_at, found.status, found.attempt_count,
        found.now, exhausted_reason=Exhausted.DEADLINE_EXCEEDED,
    )  # fmt: skip
    return Over(intent, found.contract.webhook)


def _verdicts(made: Made, outcome: Outcome, retry_delay_s: float) -> str:
    case = Case(made.contract, outcome, made.number, made.created_at, EARLIEST, retry_delay_s)
    return json.dumps([
        {"from_at": instant_text(at), "status": one.status.value, "exhausted_reason": one.exhausted_reason}
        for at, one in timetable(case)
    ])  # fmt: skip
