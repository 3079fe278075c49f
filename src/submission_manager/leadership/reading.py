"""Reads the leader's schedule from the database: all of it when a term begins, then the changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fencehold import ConfigurationError, Unavailable, Uncertain
from submission_manager.context import ServiceContext
from submission_manager.executor.tenure import SQL_ERRORS, Tenure
from submission_manager.fitness import Fitness
from submission_manager.ports import Cursor, Page, SchedulePort, attempt_key
from submission_manager.schedule.schedule import micros, micros_or_none

TROUBLE_PAUSE_S = 1.0
FITNESS_EVERY_S = 10.0
UNFIT = ("no_permission", "schema_missing", "schema_old")
NAMED_MAX = 20
LEFT_OPEN = (
    "an earlier leader began them, and their outcome was not recorded: each becomes an attempt with the error "
    "`outcome unknown`; ask the provider about these keys to learn what became of them"
)


@dataclass(frozen=True)
class LeadershipSettings:
    """The settings for reading the schedule.

    `hint_gap_s`: the shortest time between two reads caused by hints (a database's notifications that an intent was
    submitted), so that many hints cause few reads. `priorities`: by target; a target not in it has 0.
    `virtual_deadline_s` orders intents without a deadline.
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


class ScheduleReader:
    """Reads the schedule from the database into a tenure, the state of one term; keeps nothing after the term."""

    def __init__(
        self,
        schedule: SchedulePort,
        fitness: Fitness,
        settings: LeadershipSettings,
        context: ServiceContext,
    ) -> None:
        self._schedule, self._fitness, self._settings = schedule, fitness, settings
        self._clock, self._metrics, self._facts = context.clock, context.metrics, context.facts
        self._hinted = asyncio.Event()

    def hint(self) -> None:
        """Refresh the schedule now, not only at the next interval, because an intent was submitted."""
        self._hinted.set()

    def listen(self) -> None:
        """Register for the database's hints that something was submitted."""
        self._schedule.on_submitted(self.hint)

    async def rebuild(self, tenure: Tenure) -> Cursor:
        """Check that this instance can lead, and read the whole schedule. Returns the cursor for the refreshes.

        No attempt begins before this, so no message is sent whose outcome could not be recorded.
        """
        began_s = self._clock.now_s()
        while True:
            try:
                await self._must_be_fit(tenure)
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
        await self._log_left_open(tenure)
        return cursor

    async def _log_left_open(self, tenure: Tenure) -> None:
        """Log the attempts that earlier leaders left open. No work depends on it, so an error does not end the term."""
        term = tenure.term
        told = {"lease_name": term.name, "lease_epoch": term.epoch, "why": LEFT_OPEN}
        try:
            found = await self._schedule.left_open(term, NAMED_MAX, self._settings.read_limit_s)
        except SQL_ERRORS as error:
            self._facts.fact("outcomes_unknown", **told, sql_error=str(error))
            return
        if found.attempts:
            intents = [intent_id for intent_id, _ in found.first]
            keys = [attempt_key(intent_id, number) for intent_id, number in found.first]
            self._facts.fact("outcomes_unknown", attempts=found.attempts, intents=intents, keys=keys, **told)

    async def stay_fit(self, tenure: Tenure) -> None:
        """Check the tables and rights at intervals; end the term if one is missing.

        Otherwise many messages could be sent whose outcomes cannot be recorded.
        """
        while True:
            await asyncio.sleep(FITNESS_EVERY_S)
            try:
                await self._must_be_fit(tenure)
            except ConfigurationError as error:
                if error.code in UNFIT:  # but not while a password is being changed: open connections still work
                    tenure.unfit(error)
            except (Unavailable, Uncertain):
                continue  # the calls that need the database report it

    async def _must_be_fit(self, tenure: Tenure) -> None:
        misfit = await self._fitness.misfit(self._settings.read_limit_s)
        if misfit is not None:
            tenure.unfit(misfit)

    async def _read_all(self, tenure: Tenure) -> Cursor:
        cursor: Cursor | None = None
        async with _closing(self._schedule.rebuild(self._settings.page_rows, self._settings.read_limit_s)) as pages:
            async for page in pages:
                tenure.check()
                cursor = self._observe(tenure, page)
        assert cursor is not None, "a rebuild has at least one page, if an empty one"
        return cursor

    async def refresh(self, tenure: Tenure, cursor: Cursor) -> None:
        """Read the schedule's changes at intervals, and at once when an intent was submitted, until the term ends."""
        complete_s = self._clock.now_s()  # when the last complete refresh began
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
            if hinted:  # at most a third of the time is spent reading, however many hints there are
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


@asynccontextmanager
async def _closing(pages: AsyncIterator[Page]) -> AsyncIterator[AsyncIterator[Page]]:
    """Close the iterator of pages at once if a rebuild is cut short.

    Its connection must not wait for garbage collection.
    """
    try:
        yield pages
    finally:
        if isinstance(pages, AsyncGenerator):
            await pages.aclose()
