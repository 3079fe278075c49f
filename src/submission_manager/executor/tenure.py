"""One term of office as the executor sees it: its schedule, the database's clock, and what went wrong first."""

from __future__ import annotations

import asyncio
import datetime as dt

from fencehold import ConfigurationError, FenceholdError, Term, Unavailable, Uncertain
from fencehold.ports.clock import Clock
from fencehold.ports.facts import FactSink
from submission_manager.rare_log import RareLog
from submission_manager.schedule.schedule import VIRTUAL_US, Schedule, micros

#: The database did not do, or may not have done, what it was asked. LeaseLost is not among them: that is an answer.
SQL_ERRORS = (Unavailable, Uncertain, ConfigurationError)
TELL_EVERY_S = 30.0


class Dropped(Exception):
    """Leadership is being given up; nothing new may begin."""


class StoreClock:
    """The database's clock as last seen, carried on by one that runs through suspend; late by a round trip at most."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_us = 0

    def saw(self, now: dt.datetime) -> None:
        self._ahead_us = micros(now) - int(self._clock.now_s() * 1_000_000)

    def now_us(self) -> int:
        return int(self._clock.now_s() * 1_000_000) + self._ahead_us


class Tenure:
    """All of it is thrown away when the term ends."""

    def __init__(
        self, term: Term, clock: Clock, facts: FactSink, *, drops_on_error: bool, virtual_us: int = VIRTUAL_US
    ) -> None:
        self.term = term
        self.schedule = Schedule(virtual_us)
        self.store_clock = StoreClock(clock)
        self.work = asyncio.Event()  # something may have become due, or room may have become free
        self.deadlines = asyncio.Event()  # there may be an earlier one than was known
        self.over = asyncio.Event()  # the lease is given back, or lost: whoever waits to write hears it from the fence
        self.fault: asyncio.Future[FenceholdError] = asyncio.get_running_loop().create_future()
        self._errors = RareLog(facts, "executor_sql_error", "errors", TELL_EVERY_S)
        self._drops_on_error = drops_on_error

    def check(self) -> None:
        """Raise unless something new may begin at this instant."""
        self.term.check()
        if self.fault.done():
            raise Dropped

    def wake(self) -> None:
        """The schedule has changed."""
        self.work.set()
        self.deadlines.set()

    def troubled(self, doing: str, error: FenceholdError) -> None:
        """The database gave no answer. Raises Dropped if that ends the term; else the caller tries again, later."""
        self.trouble(doing, error)
        if self.fault.done():
            raise Dropped

    def trouble(self, doing: str, error: FenceholdError) -> None:
        """The same for whoever tries again in any case, while the lease lasts."""
        self._errors.add(
            doing, lease_name=self.term.name, holder_id=self.term.holder_id, lease_epoch=self.term.epoch, doing=doing,
            sql_error=str(error),
        )  # fmt: skip
        if self._drops_on_error and not self.fault.done():
            self.fault.set_result(error)

    def unfit(self, error: ConfigurationError) -> None:
        """What no retry mends: the term ends whatever is to be done about errors. Raises Dropped."""
        self.trouble("fitness", error)
        if not self.fault.done():
            self.fault.set_result(error)
        raise Dropped

    def end(self) -> None:
        self.over.set()
        self._errors.close()
