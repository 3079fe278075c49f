"""How many connections a worker has to PostgreSQL: counted on the server, and as many as the page says."""

import re

import psycopg

import fencehold
from tests.fencehold.cli.cli_process import prepare
from tests.fencehold.cli.worker.test_health import asked
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import Gate, Heard, eventually, running
from tests.servers.programs import ROOT

COUNT = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'fencehold' AND backend_type = 'client backend'"
)


def promised(words: str) -> int:
    """The number that the page has at `#`."""
    page = " ".join((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8").split())
    [number] = re.findall(re.escape(words).replace(r"\#", r"(\d+)"), page)
    return int(number)


def connections(url: str) -> int:
    with psycopg.connect(url, application_name="the count's own") as counting:
        return int(counting.execute(COUNT).fetchone()[0])  # type: ignore[index]


async def has(url: str, count: int) -> None:
    """A connection that was just closed is a moment longer in the list."""

    async def is_so() -> bool:
        return connections(url) == count

    await eventually(is_so, 10)


async def test_a_worker_has_as_many_connections_as_the_page_says(postgres_url: str, opened: Opened) -> None:
    plain = promised("A process with a worker has # connections (leases; turns; heartbeat)")
    active = promised("the one whose reaper is the active one has #.")
    others = Heard()
    async with opened(postgres_url) as (outbox, facts), fencehold.connect(postgres_url, facts=others) as second:
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate)):
            await facts.once("reaper_run")
            await has(postgres_url, active + 1)  # and one of the store without a worker
            async with running(second.outbox().worker(gate)):
                await others.once("worker_started")
                await others.once("worker_watched")  # by the heartbeat's side, which begins before
                await has(postgres_url, active + plain)
            await outbox.add_many([("a", n) for n in range(50)])
            await gate.until(lambda: len(gate.done) >= 50)
            await has(postgres_url, active + 1 + 1)  # and that of outbox.add
            async with await psycopg.AsyncConnection.connect(postgres_url) as mine:
                await outbox.add("a", 1, tx=mine)
            await has(postgres_url, active + 1 + 1)


def test_a_reaper_has_as_many_as_the_page_says(postgres_url: str) -> None:
    prepare(postgres_url)
    with asked(postgres_url, "reaper") as (page, _):
        page.until("ready", 200, [])
        assert connections(postgres_url) == promised("`fencehold reaper` has #.")
