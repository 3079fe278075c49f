"""What a worker and a reaper say of themselves when asked whether they can work."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

import fencehold
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import Gate, dialect, eventually, own_connection, running


async def code_of_probe(one: fencehold.Worker | fencehold.Reaper) -> str:
    try:
        await one.probe()
    except fencehold.FenceholdError as error:
        return error.code
    return "well"


async def is_well(one: fencehold.Worker | fencehold.Reaper) -> bool:
    return await code_of_probe(one) == "well"


async def test_a_worker_is_well_from_its_start_to_its_stop_while_its_table_is_there(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate()
        worker = outbox.worker(gate)
        assert await code_of_probe(worker) == "starting"
        async with running(worker):
            await heard.once("worker_started")
            assert await code_of_probe(worker) == "well"
            await outbox.add("a", 1)
            await gate.has(1)
            worker.stop()
            await heard.once("worker_stopping")
            assert await code_of_probe(worker) == "stopping"
            gate.open()


async def test_a_reaper_is_well_too_whether_it_is_the_active_one_or_not(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        reapers = [outbox.reaper(), outbox.reaper()]
        assert [await code_of_probe(one) for one in reapers] == ["starting", "starting"]
        tasks = [asyncio.create_task(one.run()) for one in reapers]
        await heard.once("reaper_run")  # by the active one; the other may begin later
        for one in reapers:
            await eventually(functools.partial(is_well, one))
        await execute(url, "DROP TABLE outbox")
        assert [await code_of_probe(one) for one in reapers] == ["schema_missing", "schema_missing"]
        for one in reapers:
            one.stop()
        await asyncio.gather(*tasks)
        assert [await code_of_probe(one) for one in reapers] == ["stopping", "stopping"]


@pytest.mark.parametrize("where", ["memory", "sqlite", "postgres"])
async def test_a_worker_that_died_by_an_error_is_not_well(
    request: pytest.FixtureRequest, opened: Opened, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("a fault of our own")

    url = {"memory": "memory://", "sqlite": "file_url", "postgres": "schema_url"}[where]
    async with opened(url if where == "memory" else str(request.getfixturevalue(url))) as (outbox, _):
        worker = outbox.worker(Gate(), poll_every="20ms")
        monkeypatch.setattr(worker, "_turn", broken)
        with pytest.raises(ZeroDivisionError):
            await worker.run()
        assert await code_of_probe(worker) == "stopping"


@asynccontextmanager
async def nobody_else_writes(url: str) -> AsyncIterator[None]:
    """SQLite's write lock, or on PostgreSQL the table's."""
    with closing(own_connection(url, autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE" if dialect(url) == "sqlite" else "BEGIN")
        if dialect(url) == "postgresql":
            other.execute("LOCK TABLE outbox IN EXCLUSIVE MODE")
        yield
        other.execute("ROLLBACK")


async def test_a_worker_that_can_claim_nothing_is_not_well_though_reading_works(
    pg_or_sqlite_url: str, opened: Opened
) -> None:
    async with opened(pg_or_sqlite_url, lease="2s") as (outbox, heard):
        worker = outbox.worker(Gate(is_open=True), poll_every=0.1, reaper=False)
        await outbox.reap()  # so that no reaper is missed
        async with running(worker):
            await eventually(functools.partial(is_well, worker))
            async with nobody_else_writes(pg_or_sqlite_url):
                await heard.once("worker_store_failed")
                assert (await outbox.stats()).pending == 0, "reading works"
                assert await code_of_probe(worker) != "well"
            await eventually(functools.partial(is_well, worker))


async def test_a_reaper_that_can_recover_nothing_is_not_well_though_reading_works(
    pg_or_sqlite_url: str, opened: Opened
) -> None:
    async with opened(pg_or_sqlite_url, lease="2s", reap_every=0.2) as (outbox, heard):
        reaper = outbox.reaper()
        task = asyncio.create_task(reaper.run())
        await eventually(functools.partial(is_well, reaper))
        async with nobody_else_writes(pg_or_sqlite_url):
            await heard.once("reaper_failed")
            assert await code_of_probe(reaper) != "well"
        await eventually(functools.partial(is_well, reaper))
        reaper.stop()
        await task
