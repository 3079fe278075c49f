"""Follower, leader, follower: in each term the schedule is rebuilt, kept fresh and executed, and then forgotten.

Followers build no schedule. Whatever ends the term ends all of it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fencehold import ConfigurationError, FenceholdError, Leader, LeaseLost, Term
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from submission_manager.executor import Executor
from submission_manager.executor_backlog import BacklogWatch
from submission_manager.executor_metrics import ExecutorMetrics
from submission_manager.executor_tenure import SQL_ERRORS, Dropped, Tenure
from submission_manager.executor_webhooks import WebhookDesk
from submission_manager.ports import Cursor, Page, SchedulePort
from submission_manager.schedule import micros, micros_or_none

TROUBLE_PAUSE_S = 1.0
# After what no retry can mend, such as a missing table: else instances would hand the lease around every second.
MISFIT_PAUSE_S, MISFIT_PAUSE_MAX_S = 1.0, 60.0
CUT, CUT_AT_ONCE = "they did not end within the drain timeout", "a second signal ended the process at once"
UNKNOWN = "; the next leader counts each as an attempt with an unknown outcome"


@dataclass(frozen=True)
class LeadershipSettings:
    """`hint_gap_s`: at a flood of hints the schedule is read this often, not once for each.

    `priorities` by target, 0 for those that are not there. `virtual_deadline_s` orders what has no deadline.
    """

    refresh_every_s: float = 1.0
    page_rows: int = 5000
    read_limit_s: float = 5.0
    drops_on_error: bool = True
    hint_gap_s: float = 0.01
    stop_limit_s: float = 10.0
    step_down_limit_s: float = 5.0
    virtual_deadline_s: float = 60.0
    priorities: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.refresh_every_s > 0 and self.page_rows > 0 and self.read_limit_s > 0):
            raise ValueError("refresh_every_s, page_rows and read_limit_s must be above 0")
        if not self.virtual_deadline_s > 0:
            raise ValueError("virtual_deadline_s must be above 0")


class Leadership:
    """Executes only inside a valid term, and only after a full rebuild within it."""

    def __init__(
        self,
        leader: Leader,
        schedule: SchedulePort,
        executor: Executor,
        webhooks: WebhookDesk,
        backlog: BacklogWatch,
        settings: LeadershipSettings,
        *,
        clock: Clock,
        metrics: ExecutorMetrics,
        facts: FactSink,
    ) -> None:
        self._leader, self._schedule = leader, schedule
        self._executor, self._webhooks, self._backlog = executor, webhooks, backlog
        self._settings = settings
        self._clock, self._metrics, self._facts = clock, metrics, facts
        self._hinted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._pause_s = MISFIT_PAUSE_S
        self._misfit: ConfigurationError | None = None  # what ended our newest term, unless we have led well since
        self._leads_since_s: float | None = None

    @property
    def misfit(self) -> ConfigurationError | None:
        """What keeps this instance from leading, such as a right it has lost: until it has led for a minute again."""
        since_s = self._leads_since_s
        if since_s is not None and self._clock.now_s() - since_s > MISFIT_PAUSE_MAX_S:
            self._misfit = None
        return self._misfit

    async def run(self) -> None:
        """Until `stop()`."""
        self._schedule.on_submitted(self.hint)
        try:
            async with self._leader:
                while not self._stopping.is_set() and not await self._terms():
                    await self._rest()
        finally:
            await self._executor.close()
            await self._webhooks.close()

    async def _terms(self) -> bool:
        """True: the leader is done; False: one of its terms ended by what no retry can mend."""
        terms = self._leader.terms()
        try:
            async for term in terms:
                began_s = self._leads_since_s = self._clock.now_s()
                fault = await self._hold(term)
                self._leads_since_s = None
                if self._clock.now_s() - began_s > MISFIT_PAUSE_MAX_S or not isinstance(fault, ConfigurationError):
                    self._pause_s = MISFIT_PAUSE_S
                if isinstance(fault, ConfigurationError):
                    self._misfit = fault
                    return False
            return True
        finally:
            await terms.aclose()

    async def _rest(self) -> None:
        """Seek no lease for a while, twice as long as the last time; then seek it again."""
        await self._leader.shutdown(self._settings.step_down_limit_s)
        while True:
            self._facts.fact("leadership_paused", holder_id=self._leader.holder_id, seconds=self._pause_s)
            is_stopping = await self._clock.wait(self._stopping, self._pause_s)
            self._pause_s = min(2 * self._pause_s, MISFIT_PAUSE_MAX_S)
            if is_stopping:
                return
            try:
                await self._leader.start()
                return
            except ConfigurationError as error:  # the leases' own table is missing too
                self._misfit = error
                self._facts.fact("leader_acquire_failed", lease_name=self._leader.name, sql_error=str(error))

    async def stop(self) -> int:
        """Nothing new begins, what runs may finish within its limit, then the lease is given back.

        Returns how many attempts the limit cut: whether the provider took those, nobody knows.
        """
        self._stopping.set()
        self._executor.rest()
        limit_s = self._settings.stop_limit_s
        began_s = self._clock.now_s()
        await self._executor.drained(limit_s)
        cut = self._executor.intents_in_hand
        if cut:
            self._facts.fact("attempts_cut", attempts=len(cut), intents=cut, after_s=limit_s, why=CUT + UNKNOWN)
        await self._webhooks.drained(max(0.0, began_s + limit_s - self._clock.now_s()))
        if self._webhooks.in_hand:
            self._facts.fact("webhooks_cut", webhooks=self._webhooks.in_hand, why="the next leader sends them")
        await self._leader.shutdown(self._settings.step_down_limit_s)
        return len(cut)

    def tell_cut(self) -> None:
        """The process ends now: what that cuts is told, if anything. Any thread."""
        cut = self._executor.intents_in_hand
        if cut:
            self._facts.fact("attempts_cut", attempts=len(cut), intents=cut, why=CUT_AT_ONCE + UNKNOWN)

    def hint(self) -> None:
        """Something was submitted, here or elsewhere: look now instead of at the next round."""
        self._hinted.set()

    # --- one term ---

    async def _hold(self, term: Term) -> FenceholdError | None:
        """What the database did to end it, if it did."""
        tenure: Tenure | None = None
        try:
            async with term:  # one that is over already: waits for the next, which `term` then is
                tenure = Tenure(
                    term, self._clock, self._facts, drops_on_error=self._settings.drops_on_error,
                    virtual_us=int(self._settings.virtual_deadline_s * 1_000_000),
                )  # fmt: skip
                await self._lead_as(tenure, term.epoch)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends this term, not the service
            if tenure is None and isinstance(error, LeaseLost):
                return None  # the leader was stopped before the term began
            self._facts.fact("internal_error", error=f"{type(error).__name__}: {error}")
        fault = tenure.fault.result() if tenure is not None and tenure.fault.done() else None
        if fault is not None:
            self._tell_lost(term, fault)
        if term.is_valid:  # so that others need not wait for it to lapse
            await self._leader.step_down(self._settings.step_down_limit_s)
        return fault

    async def _lead_as(self, tenure: Tenure, epoch: int) -> None:
        self._metrics.role(True, epoch)
        try:
            await self._lead(tenure)
        finally:
            self._executor.abandon(tenure)
            self._webhooks.abandon(tenure)
            self._metrics.role(False, epoch)
            self._metrics.queue_depth(0)

    async def _lead(self, tenure: Tenure) -> None:
        """Returns when leadership is to be dropped; cancelled when it is lost."""
        try:
            cursor = await self._rebuild(tenure)
            tenure.check()  # it may have been lost meanwhile; then this schedule is never used
        except Dropped:
            return
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(_until_dropped(loop))
                for loop in (
                    self._refresh(tenure, cursor),
                    self._executor.run(tenure),
                    self._executor.expire(tenure),
                    self._webhooks.sweep(tenure),
                    self._backlog.run(tenure),
                )
            ]
            await asyncio.shield(tenure.fault)
            for one in loops:
                one.cancel()

    async def _rebuild(self, tenure: Tenure) -> Cursor:
        began_s = self._clock.now_s()
        while True:
            try:
                await self._schedule.listen(self._settings.read_limit_s)
                cursor = await self._read_all(tenure)
                break
            except SQL_ERRORS as error:
                tenure.troubled("rebuild", error)
                await asyncio.sleep(TROUBLE_PAUSE_S)
        took_s = self._clock.now_s() - began_s
        self._metrics.rebuilt(len(tenure.schedule), took_s)
        self._facts.fact(
            "schedule_rebuilt", lease_name=tenure.term.name, lease_epoch=tenure.term.epoch,
            intents=len(tenure.schedule), seconds=round(took_s, 3),
        )  # fmt: skip
        return cursor

    async def _read_all(self, tenure: Tenure) -> Cursor:
        cursor: Cursor | None = None
        async with _closing(self._schedule.rebuild(self._settings.page_rows, self._settings.read_limit_s)) as pages:
            async for page in pages:
                tenure.check()
                cursor = self._observe(tenure, page)
        assert cursor is not None, "a rebuild has at least one page, if an empty one"
        return cursor

    async def _refresh(self, tenure: Tenure, cursor: Cursor) -> None:
        """Every so often, and at once on a hint."""
        complete_s = self._clock.now_s()  # when the last complete look began
        while True:
            hinted = await self._clock.wait(self._hinted, self._settings.refresh_every_s)
            self._hinted.clear()
            began_s = self._clock.now_s()
            try:
                cursor, rows = await self._catch_up(tenure, cursor)
            except SQL_ERRORS as error:
                tenure.troubled("refresh", error)
                await asyncio.sleep(min(TROUBLE_PAUSE_S, self._settings.refresh_every_s))
                continue
            now_s = self._clock.now_s()
            self._metrics.refreshed(rows, now_s - began_s, now_s - complete_s)
            complete_s = began_s
            if hinted:  # at most a third of the time goes into looking, however many hints there are
                await asyncio.sleep(max(self._settings.hint_gap_s, 2 * (now_s - began_s)))

    async def _catch_up(self, tenure: Tenure, cursor: Cursor) -> tuple[Cursor, int]:
        rows = 0
        while True:
            tenure.check()
            page = await self._schedule.refresh(cursor, self._settings.page_rows, self._settings.read_limit_s)
            cursor = self._observe(tenure, page)
            rows += len(page.rows)
            if len(page.rows) < self._settings.page_rows:
                return cursor, rows

    def _observe(self, tenure: Tenure, page: Page) -> Cursor:
        tenure.store_clock.saw(page.now)
        now_us, priorities = micros(page.now), self._settings.priorities
        for row in page.rows:
            tenure.schedule.observe(
                row.intent_id, micros_or_none(row.due_at), row.gateway_url, deadline_us=micros_or_none(row.deadline_at),
                priority=priorities.get(row.submission_target, 0), now_us=now_us,
            )  # fmt: skip
        tenure.wake()  # also for an empty page: the database's clock may have been set
        return page.cursor

    def _tell_lost(self, term: Term, error: FenceholdError) -> None:
        self._facts.fact(
            "leader_lost", lease_name=term.name, holder_id=term.holder_id, lease_epoch=term.epoch,
            expires_at=term.expires_at.isoformat(), reason="sql_error", sql_error=str(error),
        )  # fmt: skip


@asynccontextmanager
async def _closing(pages: AsyncIterator[Page]) -> AsyncIterator[AsyncIterator[Page]]:
    """A rebuild cut short gives its connection back now, not when its generator is collected."""
    try:
        yield pages
    finally:
        if isinstance(pages, AsyncGenerator):
            await pages.aclose()


async def _until_dropped(loop: Coroutine[Any, Any, None]) -> None:
    try:
        await loop
    except Dropped:
        return
