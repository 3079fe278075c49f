"""Adding: for sure when it returns, or with the caller's own transaction; twice the same is once."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio as sa_async
import sqlalchemy.orm

import fencehold
import fencehold.sync
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import dialect, own_connection, row, rows

#: Yields (tx, commit, rollback) for one kind of caller.
Way = Callable[[str], AbstractAsyncContextManager[tuple[Any, Callable[[], Any], Callable[[], Any]]]]


def sa_url(url: str, is_async: bool = False) -> str:
    if dialect(url) == "sqlite":
        return url.replace("sqlite://", "sqlite+aiosqlite://") if is_async else url
    if dialect(url) == "mssql":
        return url.replace("mssql://", "mssql+mssqlpython://").replace("encrypt=", "Encrypt=")
    return url.replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def driver_sync(url: str) -> AsyncIterator[Any]:
    connection = own_connection(url)
    try:
        yield connection, connection.commit, connection.rollback
    finally:
        connection.close()


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, connection.commit, connection.rollback


@asynccontextmanager
async def sa_session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(sa_url(url))
    with sqlalchemy.orm.Session(engine) as session:
        yield session, session.commit, session.rollback
    engine.dispose()


@asynccontextmanager
async def sa_connection(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(sa_url(url))
    with engine.connect() as connection:
        yield connection, connection.commit, connection.rollback
    engine.dispose()


@asynccontextmanager
async def sa_session_async(url: str) -> AsyncIterator[Any]:
    engine = sa_async.create_async_engine(sa_url(url, is_async=True))
    async with sa_async.AsyncSession(engine) as session:
        yield session, session.commit, session.rollback
    await engine.dispose()


@asynccontextmanager
async def sa_connection_async(url: str) -> AsyncIterator[Any]:
    engine = sa_async.create_async_engine(sa_url(url, is_async=True))
    async with engine.connect() as connection:
        yield connection, connection.commit, connection.rollback
    await engine.dispose()


WAYS: list[Way] = [driver_sync, psycopg_async, sa_session, sa_connection, sa_session_async, sa_connection_async]
#: What a database lacks, and what is taken instead: no async driver for SQL Server is here.
INSTEAD: dict[str, dict[Way, Way]] = {
    "postgresql": {},
    "sqlite": {psycopg_async: driver_sync},
    "mssql": {psycopg_async: driver_sync, sa_session_async: sa_session, sa_connection_async: sa_connection},
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))


async def finish(end: Callable[[], Any]) -> None:
    answer = end()
    if isinstance(answer, Awaitable):
        await answer


@EVERY_WAY
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_an_event_is_there_with_the_callers_transaction_or_not_at_all(
    url: str, opened: Opened, way: Way, commits: bool
) -> None:
    way = INSTEAD[dialect(url)].get(way, way)
    async with opened(url) as (outbox, _):
        await execute(url, "CREATE TABLE business (a int)")
        async with way(url) as (tx, commit, rollback):
            first = await outbox.add("a", 1, tx=tx, aggregate_id="x", priority=2, metadata={"m": 1})
            more = await outbox.add_many([("a", 2), ("a", 3)], tx=tx)
            if dialect(url) == "postgresql":  # elsewhere a reader may have to wait for the commit
                assert await rows(url) == [], "nobody sees it before the commit"
            await finish(commit if commits else rollback)
        found = [each["tracking_id"] for each in await rows(url)]
        assert found == ([first, *more] if commits else [])


@EVERY_WAY
async def test_an_event_and_the_business_change_commit_together(url: str, opened: Opened, way: Way) -> None:
    way = INSTEAD[dialect(url)].get(way, way)
    async with opened(url) as (outbox, _):
        await execute(url, "CREATE TABLE business (a int)")
        insert: Any = "INSERT INTO business VALUES (1)"
        async with way(url) as (tx, commit, rollback):
            for end in (rollback, commit):
                statement = sqlalchemy.text(insert) if "sqlalchemy" in type(tx).__module__ else insert
                await finish(lambda: tx.execute(statement))  # noqa: B023 - called at once
                await outbox.add("a", 1, tx=tx)
                await finish(end)
        assert await execute(url, "SELECT count(*) FROM business") == [(1,)]
        assert len(await rows(url)) == 1


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_without_an_event_loop_an_event_is_added_with_the_callers_transaction(url: str, commits: bool) -> None:
    with fencehold.sync.connect(url) as store:
        outbox = store.outbox()
        store.init()
        engine = sqlalchemy.create_engine(sa_url(url))
        plain = own_connection(url)
        with sqlalchemy.orm.Session(engine) as session:
            for tx in (session, plain):
                outbox.add("a", 1, tx=tx)
                tx.commit() if commits else tx.rollback()
        plain.close()
        engine.dispose()
        assert len(outbox.find()) == (2 if commits else 0)


async def test_a_tracking_id_that_is_known_is_not_added_again(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        chosen = uuid.uuid4()
        assert await outbox.add("a", 1, tracking_id=chosen) == str(chosen)
        assert await outbox.add("b", 2, tracking_id=str(chosen).upper()) == str(chosen)
        await outbox.add_many([{"event_type": "c", "payload": n, "tracking_id": chosen} for n in range(3)])
        async with driver_sync(url) as (tx, commit, _):
            await outbox.add("d", 1, tx=tx, tracking_id=chosen)
            commit()
        assert [(found["tracking_id"], found["event_type"]) for found in await rows(url)] == [(str(chosen), "a")]


async def test_adders_at_once_with_one_tracking_id_add_one_event(url: str, opened: Opened) -> None:
    chosen = uuid.uuid4()
    async with opened(url) as (outbox, _), fencehold.connect(url) as second:
        other = second.outbox()
        await asyncio.gather(*(box.add("a", n, tracking_id=chosen) for n in range(10) for box in (outbox, other)))
        assert len(await rows(url)) == 1


async def test_six_thousand_are_added_in_order(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        ids = await outbox.add_many(("a", n) for n in range(6000))
        assert [found["tracking_id"] for found in await rows(url)] == ids


async def test_a_known_event_far_down_in_a_long_list_is_not_added_again(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        known = await outbox.add("a", "known", tracking_id=uuid.uuid4())
        more = [("a", n) for n in range(300)]
        ids = await outbox.add_many([*more, {"event_type": "a", "payload": "again", "tracking_id": known}])
        assert (len(ids), ids[-1]) == (301, known)
        assert sorted(found["tracking_id"] for found in await rows(url)) == sorted(ids)


async def test_a_new_event_has_the_columns_of_the_rule_book(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", {"schema_version": 2})
        found = await row(url, event)
        assert (found["status"], found["retry_count"], found["max_retries"]) == ("PENDING", 0, 5)
        assert found["processed_at"] is found["locked_until"] is found["lock_token"] is found["last_error"] is None
        assert found["created_at"] is not None
        columns = "aggregate_id, aggregate_type, payload, metadata"
        assert await execute(url, f"SELECT count(*) FROM (SELECT {columns} FROM outbox) AS x") == [(1,)]
        with pytest.raises(Exception, match=r"(?i)check constraint"):
            await execute(url, "UPDATE outbox SET status = 'BOGUS'")


@EVERY_WAY
async def test_a_consumer_meets_an_event_once_with_its_effect(url: str, opened: Opened, way: Way) -> None:
    way = INSTEAD[dialect(url)].get(way, way)
    async with opened(url) as (outbox, _):
        event = str(uuid.uuid4())
        async with way(url) as (tx, commit, rollback):
            assert await outbox.first_time(event, "mailer", tx=tx) is True
            assert await outbox.first_time(event, "mailer", tx=tx) is False
            await finish(rollback)
            assert await outbox.first_time(event, "mailer", tx=tx) is True, "the effect was rolled back as well"
            await finish(commit)
            assert await outbox.first_time(event, "mailer", tx=tx) is False
            assert await outbox.first_time(event, "auditor", tx=tx) is True
            await finish(commit)
        found = await execute(url, "SELECT consumer_id FROM outbox_consumed ORDER BY 1")
        assert found == [("auditor",), ("mailer",)]
