"""The executor's state for one term: its schedule, an estimate of the database's clock, and the first error."""

from __future__ import annotations

import asyncio
import datetime as dt

from fencehold import ConfigurationError, FactSink, FenceholdError, Term, Unavailable, Uncertain
from fencehold.service import Clock
from submission_manager.rare_log import RareLog
from submission_manager.schedule.schedule import VIRTUAL_US, Schedule, micros

#: The database did not execute a call, or perhaps did not. LeaseLost is not among them: it is an answer.
SQL_ERRORS = (Unavailable, Uncertain, ConfigurationError)
LOG_EVERY_S = 30.0


class Dropped(Exception):
    """Raised while leadership is being given up: no new work may begin."""


class StoreClock:
    """An estimate of the database's clock: the last value read, plus the time since then by our own clock.

    Our clock runs during suspend. The estimate is late by one round trip at most.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_us = 0

    def saw(self, now: dt.datetime) -> None:
        self._ahead_us = micros(now) - int(self._clock.now_s() * 1_000_000)

    def now_us(self) -> int:
        return int(self._clock.now_s() * 1_000_000) + self._ahead_us


class Tenure:
    """The state of one term of leadership; discarded when the term ends."""

    def __init__(
        self, term: Term, clock: Clock, facts: FactSink, *, drops_on_error: bool, virtual_us: int = VIRTUAL_US
    ) -> None:
        self.term = term
        self.schedule = Schedule(virtual_us)
        self.store_clock = StoreClock(clock)
        self.work = asyncio.Event()  # something may have become due, or room may have become free
        self.deadlines = asyncio.Event()  # there may be an earlier deadline than before
        self.over = asyncio.Event()  # the lease is released or lost: waiting writes wake and raise LeaseLost
        self.fault: asyncio.Future[FenceholdError] = asyncio.get_running_loop().create_future()
        self._errors = RareLog(facts, "executor_sql_error", LOG_EVERY_S)
        self._drops_on_error = drops_on_error

    def check(self) -> None:
        """Return if new work may begin.

        Raises LeaseLost if the term is over, Dropped if leadership is being given up.
        """
        self.term.check()
        if self.fault.done():
            raise Dropped

    def wake(self) -> None:
        """Wake the loops that wait for work or deadlines: the schedule has changed."""
        self.work.set()
        self.deadlines.set()

    def troubled(self, doing: str, error: FenceholdError) -> None:
        """Log an SQL error. Raises Dropped if the error ends the term; if it returns, the caller tries again later."""
        self.trouble(doing, error)
        if self.fault.done():
            raise Dropped

    def trouble(self, doing: str, error: FenceholdError) -> None:
        """Log an SQL error like `troubled`, but never raise: for a caller that tries again in any case."""
        self._errors.add(
            doing, {"errors": 1}, lease_name=self.term.name, holder_id=self.term.holder_id,
            lease_epoch=self.term.epoch, doing=doing, sql_error=str(error),
        )  # fmt: skip
        if self._drops_on_error and not self.fault.done():
            self.fault.set_result(error)

    def unfit(self, error: ConfigurationError) -> None:
        """End the term because of an error that no retry fixes, even if `drops_on_error` is off.

        Always raises Dropped.
        """
        self.trouble("fitness", error)
        if not self.fault.done():
            self.fault.set_result(error)
        raise Dropped

    def end(self) -> None:
        self.over.set()
        self._errors.close()
