"""The gauges of the table: looked at as long as anybody can, and gone when nobody can."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fencehold
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.scene import Heard, eventually
from tests.fencehold.runtime.outbox.test_worker_rights import ROLE, clerk


class Measured(Heard):
    wants_latencies = True  # as a sink of metrics says


@asynccontextmanager
async def reaping(store: fencehold.Store) -> AsyncIterator[fencehold.Reaper]:
    reaper = store.outbox(reap_every=0.2).reaper()
    task = asyncio.create_task(reaper.run())
    try:
        yield reaper
    finally:
        reaper.stop()
        await task


async def test_a_reaper_that_can_recover_nothing_still_says_how_old_events_are(postgres_url: str) -> None:
    async with clerk(postgres_url) as (owner, url):
        heard = Measured()
        async with fencehold.connect(url, facts=heard) as store, reaping(store):
            await store.outbox().add("a", 1)
            await heard.once("outbox_stats")
            await owner(f"REVOKE UPDATE ON outbox FROM {ROLE}")
            await heard.once("reaper_failed")
            looks = heard.all("outbox_stats")
            later = await heard.once("outbox_stats", times=len(looks) + 1)
            assert later["oldest_pending_age_s"] > looks[0]["oldest_pending_age_s"]
            assert later["looked_at"] > looks[0]["looked_at"]


async def test_a_table_that_cannot_be_looked_at_any_more_is_told_once(url: str) -> None:
    heard = Measured()
    async with fencehold.connect(url, facts=heard) as store:
        store.outbox()
        await store.init()
        async with reaping(store):
            await heard.once("outbox_stats")
            await execute(url, "DROP TABLE outbox")
            await heard.once("reaper_failed", times=2)
            await heard.once("outbox_unseen")
        assert len(heard.all("outbox_unseen")) == 1


async def test_a_reaper_that_is_no_longer_the_active_one_shows_nothing(url: str) -> None:
    heard, others = Measured(), Measured()
    async with fencehold.connect(url, facts=heard) as store, fencehold.connect(url, facts=others) as second:
        store.outbox()
        await store.init()
        async with reaping(store) as first:
            await heard.once("outbox_stats")
            async with reaping(second):
                first.stop()
                await heard.once("outbox_unseen")
                await others.once("outbox_stats")

            async def all_end() -> bool:
                return bool(others.all("outbox_unseen"))

            await eventually(all_end)
