"""A fence on an async connection that is not awaited, on a real database: not silent, and the last of its term."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import fencehold
from pgleaderlock import LeaderLock
from tests.fencehold.backends.sql.test_wrong_kind_of_connection import of_driver
from tests.fencehold.runtime.election.faces import until
from tests.fencehold.runtime.outbox.scene import Heard

pytestmark = pytest.mark.filterwarnings("ignore:coroutine '.*_awaited' was never awaited")


async def test_a_job_that_forgets_to_await_its_fence_is_cut_short_and_begins_anew(pg_or_sqlite_url: str) -> None:
    engine = create_async_engine(of_driver(pg_or_sqlite_url, "aiosqlite"))
    heard, tries = Heard(), 0

    async def job(term: fencehold.Term) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            return
        async with AsyncSession(engine) as session, session.begin():
            term.fence(session)  # type: ignore[unused-coroutine]
            await session.execute(text("INSERT INTO written VALUES (1)"))
            await asyncio.Event().wait()

    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE written (x int)"))
    async with fencehold.connect(pg_or_sqlite_url, facts=heard) as store:
        await store.init()
        await store.run_as_leader("job", job, lease="3s")
    async with engine.begin() as connection:
        rows = (await connection.execute(text("SELECT count(*) FROM written"))).scalar_one()
    await engine.dispose()
    assert (rows, tries, len(heard.all("fence_not_awaited", lease_name="job", lease_epoch=1))) == (0, 2, 1)
    assert [lost["reason"] for lost in heard.all("leader_lost", lease_epoch=1)] == ["fence_not_awaited"]


async def test_a_lock_whose_fence_is_not_awaited_says_so_and_its_term_is_over(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    lock = LeaderLock.for_name(postgres_url, "forgotten", fencing_name="forgotten", auto_reacquire=False)
    async with lock, await psycopg.AsyncConnection.connect(postgres_url) as connection:
        assert await lock.wait_for_leadership(20)
        term: Any = lock.term
        term.fence(connection)
        assert not term.is_valid
        await until(lambda: any(getattr(record, "event", "") == "fence_not_awaited" for record in caplog.records))
        await connection.rollback()


async def test_such_a_term_of_a_lock_does_not_go_on_after_the_grace_either(postgres_url: str) -> None:
    options: Any = {"fencing_name": "forgotten", "reconnect_grace_s": 60, "health_interval_s": 0.2}
    async with LeaderLock.for_name(postgres_url, "forgotten", **options) as lock:
        assert await lock.wait_for_leadership(20)
        first: Any = lock.term
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await connection.execute("SELECT 1")
            first.fence(connection)
            await connection.rollback()
        await until(lambda: lock.term is not None and lock.term.is_valid)
        assert lock.term is not None
        assert (lock.term.epoch, first.is_valid) == (first.epoch + 1, False)
