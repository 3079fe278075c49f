"""submission_intents and submission_attempts in memory, on the clock of a shelf of leases."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from fencehold import Term
from fencehold.backends.memory.backend import Shelf
from submission_manager.model.contracts import Contract, GatewayType, Policy
from submission_manager.model.intents import Attempt, Backlog, Exhausted, Intent, Status, WebhookStatus
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Answer, Case, Outcome, Verdict, deadline, judge
from submission_manager.ports import Cursor, Due, Expired, LeftOpen, NotNow, Over, Page, Recorded, Started

CONTRACT = Contract("sms.test", GatewayType.SMS, "http://sms", Policy.MAX_ATTEMPTS, ("invalid_recipient",), None, 3)
TOO_LATE = Verdict(Status.EXHAUSTED, Exhausted.DEADLINE_EXCEEDED)


@dataclass
class Row:
    intent_id: str
    contract: Contract
    created_at: dt.datetime
    due_at: dt.datetime | None
    modified: int
    status: Status = Status.PENDING
    attempts: list[Attempt] = field(default_factory=list)
    exhausted_reason: str | None = None
    completed_at: dt.datetime | None = None
    webhook_status: WebhookStatus | None = None
    marker_epoch: int | None = None

    @property
    def deadline_at(self) -> dt.datetime | None:
        return deadline(self.contract, self.created_at)


class Table:
    """submission_intents and submission_attempts, as the schedule, the executor and the sweep see them."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.rows: dict[str, Row] = {}
        self.writes = 0
        self.starts: list[tuple[str, int]] = []  # intent, epoch
        self.failing: dict[str, Exception] = {}
        self.failing_once: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.hints: list[Callable[[], None]] = []
        self.page_rows_seen: list[int] = []
        self.refreshes = 0
        self.expiries: list[int] = []  # how many were to be ended at a time
        self.locked: set[str] = set()
        self.unstorable: set[str] = set()
        self.missing: list[str] = []
        self.rights: list[str] = []
        self.owned_by: str | None = None

    def submit(self, intent_id: str, contract: Contract = CONTRACT) -> None:
        now = self._shelf.now()
        owed = WebhookStatus.PENDING if contract.webhook else None
        self.rows[intent_id] = Row(intent_id, contract, now, now, self._stamp(), webhook_status=owed)

    def _stamp(self) -> int:
        self.writes += 1
        return self.writes

    async def _pass(self, verb: str) -> None:
        """Where a test may hold a verb up, or break it."""
        if verb in self.reached:
            self.reached[verb].set()
        if verb in self.gates:
            await self.gates[verb].wait()
        if verb in self.failing_once:
            raise self.failing_once.pop(verb)
        if verb in self.failing:
            raise self.failing[verb]

    # --- FitnessPort ---

    async def missing_tables(self, limit_s: float) -> list[str]:
        await self._pass("fitness")
        return self.missing

    async def rights_missing(self, limit_s: float) -> list[str]:
        return self.rights

    async def owner(self, lease_name: str, limit_s: float) -> str:
        self.owned_by = self.owned_by or lease_name
        return self.owned_by

    # --- SchedulePort ---

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        guard, rows = self.writes, sorted(self.rows.values(), key=lambda row: row.modified)
        pending = [row for row in rows if row.status is Status.PENDING]
        for at in range(0, max(1, len(pending)), page_rows):
            await self._pass("rebuild")
            yield self._page(pending[at : at + page_rows], guard)

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        self.refreshes += 1
        await self._pass("refresh")
        rows = [row for row in sorted(self.rows.values(), key=lambda r: r.modified) if row.modified > cursor]
        rows = rows[:page_rows]
        self.page_rows_seen.append(len(rows))
        return self._page(rows, rows[-1].modified if rows else cursor)

    def _page(self, rows: list[Row], guard: int) -> Page:
        now = self._shelf.now()
        dues = [
            Due(r.intent_id, r.due_at, now, r.contract.gateway_url, r.contract.submission_target, r.deadline_at)
            for r in rows
        ]
        return Page(dues, guard, now)

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        await self._pass("left_open")
        found = [r for r in self.rows.values() if r.marker_epoch not in (None, term.epoch)]
        return LeftOpen(len(found), [(row.intent_id, len(row.attempts) + 1) for row in found[:most]])

    def on_submitted(self, hint: Callable[[], None]) -> None:
        self.hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        return False

    # --- AttemptPort ---

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        await self._pass("start")
        await self._pass(f"start {intent_id}")
        async with term.transaction():
            return self._started(term, self.rows[intent_id], retry_delay_s)

    def _started(self, term: Term, row: Row, retry_delay_s: float) -> Started | NotNow:
        now = self._shelf.now()
        if row.status is not Status.PENDING:
            return NotNow(row.status)
        if row.marker_epoch is not None and row.marker_epoch != term.epoch:
            unknown = Outcome(Answer.ERROR, error=OUTCOME_UNKNOWN)
            self._append(row, unknown, retry_delay_s)
            return NotNow(row.status, row.due_at, self._over(row), unknown_outcome=True)
        if row.deadline_at is not None and row.deadline_at <= now and row.marker_epoch is None:
            self._apply(row, TOO_LATE, now)
            return NotNow(row.status, None, self._over(row))
        assert row.due_at is not None
        if row.due_at > now:
            return NotNow(row.status, row.due_at)
        assert row.marker_epoch is None, "two attempts of one intent at once"
        row.marker_epoch, row.modified = term.epoch, self._stamp()
        self.starts.append((row.intent_id, term.epoch))
        return Started(row.intent_id, len(row.attempts) + 1, row.contract, b"{}", row.created_at, now)

    async def expire(self, term: Term, intent_ids: Sequence[str]) -> Expired:
        await self._pass("expire")
        async with term.transaction():
            now, rows = self._shelf.now(), [self.rows[one] for one in intent_ids]
            if self.unstorable & set(intent_ids):
                raise ValueError("a trigger of somebody's")
            self.expiries.append(len(rows))
            past = [r for r in rows if r.deadline_at is not None and r.deadline_at <= now]
            ended = [r for r in past if r.status is Status.PENDING and r.intent_id not in self.locked]
            for row in ended:
                assert row.marker_epoch != term.epoch, "it is in hand"
                self._apply(row, TOO_LATE, now)
            over = [over for row in ended if (over := self._over(row)) is not None]
            return Expired(over, [r.intent_id for r in rows if r.status is Status.PENDING])

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        await self._pass("record")
        await self._pass(f"record {started.intent_id}")
        async with term.transaction():
            row = self.rows[started.intent_id]
            assert row.marker_epoch == term.epoch
            self._append(row, outcome, retry_delay_s)
            return Recorded(row.status, self._shelf.now(), row.due_at, self._over(row))

    def _append(self, row: Row, outcome: Outcome, retry_delay_s: float) -> None:
        now = self._shelf.now()
        row.attempts.append(Attempt(len(row.attempts) + 1, now, now, outcome.answer.value, None, outcome.error))
        verdict = judge(Case(row.contract, outcome, len(row.attempts), row.created_at, now, retry_delay_s))
        self._apply(row, verdict, now)

    def _apply(self, row: Row, verdict: Verdict, now: dt.datetime) -> None:
        row.status, row.due_at, row.marker_epoch = verdict.status, verdict.retry_at, None
        row.exhausted_reason, row.modified = verdict.exhausted_reason, self._stamp()
        row.completed_at = None if verdict.status is Status.PENDING else now

    def _over(self, row: Row) -> Over | None:
        if row.status is Status.PENDING:
            return None
        return Over(
            Intent(
                row.intent_id, row.contract.submission_target, row.created_at, row.status, len(row.attempts),
                row.completed_at, exhausted_reason=row.exhausted_reason,
            ),
            row.contract.webhook,
        )  # fmt: skip

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        await self._pass("owed_webhooks")
        ended = [r for r in self.rows.values() if r.webhook_status is WebhookStatus.PENDING]
        return [over for r in ended if (over := self._over(r)) is not None][:limit]

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        await self._pass("backlog")
        now = self._shelf.now()
        ages = [(now - row.due_at).total_seconds() for row in self.rows.values() if row.due_at is not None]
        return Backlog(sum(age >= late_s for age in ages), max([0.0, *ages]), 0)

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None:
        await self._pass("record_webhook")
        async with term.transaction():
            self.rows[intent_id].webhook_status = status
