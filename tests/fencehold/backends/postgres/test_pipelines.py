"""A connection in psycopg's pipeline mode answers late: what needs the answer is refused before anything is sent."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy

import fencehold
import fencehold.sync
from tests.fencehold.backends.sql.test_caller_mistakes import leading, rows
from tests.servers.postgres import AnyPostgres, fresh_database

EVENT = uuid.uuid4()
Verb = Callable[[fencehold.Store, fencehold.Term, Any], Awaitable[object]]
VERBS: dict[str, Verb] = {
    "add": lambda store, _, conn: store.outbox().add("a", {}, tx=conn),
    "first_time": lambda store, _, conn: store.outbox().first_time(EVENT, "mail", tx=conn),
}


@asynccontextmanager
async def leading_with_outbox(url: str) -> AsyncIterator[tuple[fencehold.Store, fencehold.Term]]:
    async with fencehold.connect(url) as store:
        store.outbox()
        await store.init()
    async with leading(url) as both:
        yield both


async def refused(attempt: Awaitable[object]) -> str:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await attempt
    return str(caught.value.code)


async def as_coroutine(verb: Callable[[], Awaitable[object]]) -> None:
    """A sync connection is refused by the call itself."""
    await verb()


@pytest.mark.parametrize("name", VERBS)
async def test_what_needs_an_answer_is_refused_in_a_pipeline(postgres_server: AnyPostgres, name: str) -> None:
    verb = VERBS[name]
    with fresh_database(postgres_server) as ours, fresh_database(postgres_server) as theirs:
        async with leading_with_outbox(theirs), leading_with_outbox(ours) as (store, term):
            for url in (ours, theirs):
                async with await psycopg.AsyncConnection.connect(url) as conn, conn.pipeline():
                    await conn.execute("INSERT INTO t VALUES (1)")
                    assert await refused(as_coroutine(lambda: verb(store, term, conn))) == "pipeline_on"
                with psycopg.connect(url) as plain, plain.pipeline():
                    plain.execute("INSERT INTO t VALUES (1)")
                    assert await refused(as_coroutine(lambda: verb(store, term, plain))) == "pipeline_on"
            assert await store.outbox().find() == []
            assert term.is_valid


async def fenced_in_a_pipeline(term: fencehold.Term, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as conn, conn.pipeline():
        await conn.execute("INSERT INTO t VALUES (1)")
        assert await refused(term.fence(conn)) == "pipeline_on"


async def fenced_in_a_sync_pipeline(term: fencehold.Term, url: str) -> None:
    with psycopg.connect(url) as conn, conn.pipeline():
        conn.execute("INSERT INTO t VALUES (1)")
        assert await refused(as_coroutine(lambda: term.fence(conn))) == "pipeline_on"


@pytest.mark.parametrize("fenced", [fenced_in_a_pipeline, fenced_in_a_sync_pipeline])
async def test_a_fence_in_a_pipeline_is_refused_and_the_transaction_cannot_commit(
    postgres_url: str, fenced: Callable[[fencehold.Term, str], Awaitable[None]]
) -> None:
    async with leading(postgres_url) as (_, term):
        with pytest.raises(psycopg.OperationalError, match="closed"):
            await fenced(term, postgres_url)
        assert term.is_valid
    assert await rows(postgres_url) == 0


async def test_beside_the_pipeline_all_is_as_ever(postgres_url: str) -> None:
    async with leading_with_outbox(postgres_url) as (store, term):
        async with await psycopg.AsyncConnection.connect(postgres_url) as conn:
            await term.fence(conn)
            async with conn.pipeline():
                await conn.execute("INSERT INTO t VALUES (1)")
            await store.outbox().add("a", {}, tx=conn)
            assert await store.outbox().first_time(EVENT, "mail", tx=conn)
        assert (len(await store.outbox().find()), await rows(postgres_url)) == (1, 1)


async def test_a_session_over_a_connection_in_a_pipeline_is_refused_too(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    async with leading_with_outbox(postgres_url) as (store, term):
        with engine.connect() as session:
            driver = session.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            with driver.pipeline():
                for verb in VERBS.values():
                    code = await refused(as_coroutine(lambda verb=verb: verb(store, term, session)))  # type: ignore[misc]
                    assert code == "pipeline_on"
    engine.dispose()


def test_without_an_event_loop_it_is_refused_too(postgres_url: str) -> None:
    with fencehold.sync.connect(postgres_url) as store, psycopg.connect(postgres_url) as conn:
        outbox = store.outbox()
        store.init()
        with conn.pipeline(), pytest.raises(fencehold.ConfigurationError) as caught:
            outbox.add("a", {}, tx=conn)
        assert caught.value.code == "pipeline_on"


async def test_a_guarded_statement_in_a_pipeline_has_no_row_count_until_it_is_synced(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):
        guard = term.guard()
        with psycopg.connect(postgres_url) as conn:
            cursor = conn.execute("INSERT INTO t VALUES (1)")
            with conn.pipeline() as pipeline:
                cursor.execute(f"UPDATE t SET a = 2 WHERE {guard.sql}".encode(), dict(guard.params))
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    guard.check(cursor)
                assert caught.value.code == "rowcount_unknown"
                assert "pipeline" in (caught.value.hint or "")
                pipeline.sync()
                guard.check(cursor)
        assert term.is_valid


async def cut_short(term: fencehold.Term, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as conn, AsyncExitStack() as stack, term:
        await term.fence(conn)
        await stack.enter_async_context(conn.pipeline())
        await conn.execute("INSERT INTO t VALUES (1)")
        term.lost("for the test")
        await asyncio.Event().wait()


async def test_a_body_that_is_cut_short_in_a_pipeline_commits_nothing(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):
        with pytest.raises(psycopg.OperationalError):  # at the end of the pipeline: its connection is closed
            await cut_short(term, postgres_url)
    assert await rows(postgres_url) == 0
