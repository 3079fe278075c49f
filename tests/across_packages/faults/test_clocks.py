"""Wall clocks that are set while leases are held: the process's own, and the server's. No lease depends on either."""

from __future__ import annotations

import datetime as dt

import psycopg
import pytest

from tests.across_packages.faults.conftest import Used
from tests.across_packages.faults.faked_clock import FakedClock, FakedServer
from tests.across_packages.processes import Process

HOUR = dt.timedelta(hours=1)
pytestmark = pytest.mark.needs("faketime")


class Worker(Process):
    def __init__(self, url: str, capability: str, clock: FakedClock) -> None:
        self._launch("worker", "tests.across_packages.faults.clock_worker", url, capability, env=clock.environment)

    def told(self, word: str) -> dt.datetime:
        """What its clock says when it has done as it was told."""
        self.say(word)
        return dt.datetime.fromisoformat(self.wait_for("worked")["wall"])


@pytest.mark.fault("client-clock", "each", "postgres")
def test_a_process_whose_clock_is_set_forth_and_back_goes_on_as_if_nothing_had_happened(
    postgres_url: str, capability: str, clock: FakedClock
) -> None:
    worker = Worker(postgres_url, capability, clock)
    try:
        worker.wait_for("ready")
        for step in (HOUR, -HOUR, dt.timedelta()):
            clock.step(step)
            said = worker.told("work")
            assert abs(said - dt.datetime.now(dt.UTC) - step) < HOUR / 2, "the clock was not set"
    finally:
        worker.kill()


@pytest.mark.fault("client-clock", "each", "sqlite")
@pytest.mark.fault("server-clock", "each", "sqlite")
def test_on_sqlite_a_process_whose_clock_is_set_forth_goes_on_with_higher_epochs(
    sqlite_url: str, capability: str, clock: FakedClock
) -> None:
    worker = Worker(sqlite_url, capability, clock)
    try:
        worker.wait_for("ready")
        clock.step(HOUR)
        assert worker.told("recover") - dt.datetime.now(dt.UTC) > HOUR / 2, "the clock was not set"
    finally:
        worker.kill()


@pytest.mark.long
@pytest.mark.fault("server-clock", "each", "postgres")
async def test_a_server_whose_clock_is_set_forth_is_worked_with_again(faked_server: FakedServer, used: Used) -> None:
    async with used(faked_server.dsn()) as use:
        assert faked_server.clock is not None
        faked_server.clock.step(HOUR)
        with psycopg.connect(faked_server.dsn()) as onlooker:
            row = onlooker.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        assert row[0] - dt.datetime.now(dt.UTC) > HOUR / 2, "the clock was not set"
        await use.recovers()
