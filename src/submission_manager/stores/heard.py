"""Wrappers around a store's parts that pass every call on and record in `Answers` whether the database answered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

from fencehold import Term
from submission_manager.answers import Answers
from submission_manager.model.backlog import Backlog
from submission_manager.model.intents import Attempt, Intent, NewIntent, WebhookStatus
from submission_manager.model.outcomes import Outcome
from submission_manager.ports import (
    AttemptPort,
    Cursor,
    Expired,
    IntakePort,
    LeftOpen,
    NotNow,
    Over,
    Page,
    Progress,
    Recorded,
    SchedulePort,
    Started,
    Submitted,
)


class HeardIntake:
    """Implements IntakePort."""

    def __init__(self, intake: IntakePort, answers: Answers) -> None:
        self._inner, self._of = intake, answers.of

    async def submit(self, new: NewIntent, limit_s: float) -> Submitted:
        return await self._of(self._inner.submit(new, limit_s))

    async def repeated(self, intent_id: str, target: str, payload: bytes | None, limit_s: float) -> Intent | None:
        return await self._of(self._inner.repeated(intent_id, target, payload, limit_s))

    async def read(self, intent_id: str, limit_s: float) -> Intent | None:
        return await self._of(self._inner.read(intent_id, limit_s))

    async def history(self, intent_id: str, limit_s: float) -> tuple[Intent, list[Attempt]] | None:
        return await self._of(self._inner.history(intent_id, limit_s))

    async def progress(self, intent_ids: Sequence[str], limit_s: float) -> list[Progress]:
        return await self._of(self._inner.progress(intent_ids, limit_s))

    async def pending_counts(self, limit_s: float) -> Mapping[str, int]:
        return await self._of(self._inner.pending_counts(limit_s))

    async def missing_tables(self, limit_s: float) -> list[str]:
        return await self._of(self._inner.missing_tables(limit_s))

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._of(self._inner.rights_missing(limit_s))

    async def owner(self, lease_name: str, limit_s: float) -> str:
        return await self._of(self._inner.owner(lease_name, limit_s))


class HeardSchedule:
    """Implements SchedulePort."""

    def __init__(self, schedule: SchedulePort, answers: Answers) -> None:
        self._inner, self._of = schedule, answers.of

    async def rebuild(self, page_rows: int, limit_s: float) -> AsyncIterator[Page]:
        pages = self._inner.rebuild(page_rows, limit_s)
        try:
            while True:
                try:
                    page = await self._of(anext(pages))
                except StopAsyncIteration:
                    return
                yield page
        finally:
            if isinstance(pages, AsyncGenerator):
                await pages.aclose()

    async def refresh(self, cursor: Cursor, page_rows: int, limit_s: float) -> Page:
        return await self._of(self._inner.refresh(cursor, page_rows, limit_s))

    async def left_open(self, term: Term, most: int, limit_s: float) -> LeftOpen:
        return await self._of(self._inner.left_open(term, most, limit_s))

    def on_submitted(self, hint: Callable[[], None]) -> None:
        self._inner.on_submitted(hint)

    async def listen(self, limit_s: float) -> bool:
        return await self._of(self._inner.listen(limit_s))


class HeardAttempts:
    """Implements AttemptPort."""

    def __init__(self, attempts: AttemptPort, answers: Answers) -> None:
        self._inner, self._of = attempts, answers.of

    async def start(self, term: Term, intent_id: str, retry_delay_s: float) -> Started | NotNow:
        return await self._of(self._inner.start(term, intent_id, retry_delay_s))

    async def record(self, term: Term, started: Started, outcome: Outcome, retry_delay_s: float) -> Recorded:
        return await self._of(self._inner.record(term, started, outcome, retry_delay_s))

    async def expire(self, term: Term, intent_ids: Sequence[str]) -> Expired:
        return await self._of(self._inner.expire(term, intent_ids))

    async def owed_webhooks(self, limit: int, limit_s: float) -> list[Over]:
        return await self._of(self._inner.owed_webhooks(limit, limit_s))

    async def backlog(self, late_s: int, rows_max: int, limit_s: float) -> Backlog:
        return await self._of(self._inner.backlog(late_s, rows_max, limit_s))

    async def record_webhook(self, term: Term, intent_id: str, status: WebhookStatus, error: str | None) -> None:
        return await self._of(self._inner.record_webhook(term, intent_id, status, error))
