"""What a caller can do to a fenced transaction by accident, and why no stale row gets through all the same."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
import sqlalchemy.orm

import fencehold


@asynccontextmanager
async def leading(url: str, table: bool = True) -> AsyncIterator[tuple[fencehold.Store, fencehold.Term]]:
    async with fencehold.connect(url) as store:
        await store.init()
        async with store.leader("x", lease="30s") as leader:
            assert await leader.wait_for_leadership(10)
            assert leader.term is not None
            if table:
                async with leader.term.transaction() as tx:
                    await tx.execute("CREATE TABLE t (a int)")
            yield store, leader.term


def end(term: fencehold.Term) -> None:
    with pytest.raises(fencehold.LeaseLost):
        raise term.lost("for the test")


async def within(term: fencehold.Term, write: Callable[[Any], Awaitable[object]]) -> None:
    async with term.transaction() as tx:
        await write(tx)


async def lapse(store: fencehold.Store) -> None:
    row = await store.leases.read("x")
    assert row is not None
    assert await store.leases.release(row)


async def rows(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as pg:
        cursor = await pg.execute("SELECT count(*) FROM t")
        found = await cursor.fetchone()
        return int(found[0]) if found else -1


async def test_a_term_that_ended_here_first_still_makes_the_callers_transaction_fail(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):
        end(term)
        async with await psycopg.AsyncConnection.connect(postgres_url) as pg:
            await pg.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(fencehold.LeaseLost):
                await term.fence(pg)
        with psycopg.connect(postgres_url) as conn:
            conn.execute("INSERT INTO t VALUES (2)")
            with pytest.raises(fencehold.LeaseLost):
                term.fence(conn)
        engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        with sqlalchemy.orm.Session(engine) as session:
            session.execute(sqlalchemy.text("INSERT INTO t VALUES (3)"))
            with pytest.raises(fencehold.LeaseLost):
                term.fence(session)
            session.commit()
        engine.dispose()
    assert await rows(postgres_url) == 0


async def test_on_sqlite_too(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    async with leading(sqlite_url) as (_, term):
        end(term)
        with sqlite3.connect(path) as conn:
            conn.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(fencehold.LeaseLost):
                term.fence(conn)
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (0,)
        conn.close()


async def test_a_refusal_inside_a_savepoint_fails_the_whole_transaction(postgres_url: str) -> None:
    async with leading(postgres_url) as (store, term):
        await lapse(store)
        conn = psycopg.connect(postgres_url)
        conn.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(fencehold.LeaseLost), conn.transaction():
            term.fence(conn)
        with pytest.raises(psycopg.OperationalError):
            conn.commit()
    assert await rows(postgres_url) == 0


async def test_inside_a_savepoint_of_asyncpg_too(postgres_url: str) -> None:
    async with leading(postgres_url) as (store, term):
        await lapse(store)
        conn = await asyncpg.connect(postgres_url)
        outer, savepoint = conn.transaction(), conn.transaction()
        await outer.start()
        await conn.execute("INSERT INTO t VALUES (1)")
        await savepoint.start()
        with pytest.raises(fencehold.LeaseLost):
            await term.fence(conn)
        for end_it in (savepoint.rollback, outer.commit):  # on a connection that is no more
            with pytest.raises(asyncpg.InterfaceError):
                await end_it()
    assert await rows(postgres_url) == 0


async def test_a_commit_inside_the_block_does_not_leave_the_rest_unfenced(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):

        async def through_tx(tx: Any) -> None:
            await tx.connection.commit()
            await tx.execute("INSERT INTO t VALUES (1)")

        async def beside_tx(tx: Any) -> None:
            await tx.connection.commit()
            await tx.connection.execute("INSERT INTO t VALUES (1)")

        for write in (through_tx, beside_tx):
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await within(term, write)
            assert caught.value.code == "fence_gone"
    assert await rows(postgres_url) == 0


async def test_a_script_that_commits_on_sqlite_does_not_leave_the_rest_unfenced(sqlite_url: str) -> None:
    async with leading(sqlite_url) as (_, term):

        async def script(tx: Any) -> None:
            tx.connection.executescript("CREATE TABLE u (a)")
            await tx.execute("INSERT INTO t VALUES (1)")

        with pytest.raises(fencehold.ConfigurationError) as caught:
            await within(term, script)
        assert caught.value.code == "fence_gone"
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as conn:
            assert conn.execute("SELECT count(*) FROM t").fetchone() == (0,)
        conn.close()


async def test_an_autocommit_engine_is_refused_whatever_its_lock_timeout(postgres_url: str) -> None:
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://") + "?options=-clock_timeout%3D15s"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    async with leading(postgres_url) as (_, term):
        with engine.connect() as conn, pytest.raises(fencehold.ConfigurationError) as caught:
            term.fence(conn)
        assert caught.value.code == "fence_outside_transaction"
    engine.dispose()


async def test_a_row_count_that_the_driver_does_not_know_is_no_success(sqlite_url: str) -> None:
    async with leading(sqlite_url) as (_, term):
        guard = term.guard()
        conn = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        conn.execute("INSERT INTO t VALUES (1)")
        counted = conn.execute(f"UPDATE t SET a = 2 WHERE {guard.sql}", dict(guard.params))
        guard.check(counted)
        for sql in ("WITH c AS (SELECT 1) UPDATE t SET a = 3 WHERE {}", "UPDATE t SET a = 4 WHERE {} RETURNING a"):
            with pytest.raises(fencehold.ConfigurationError) as caught:
                guard.check(conn.execute(sql.format(guard.sql), dict(guard.params)))
            assert caught.value.code == "rowcount_unknown"
        assert term.is_valid
        conn.close()


async def test_an_old_snapshot_is_named_as_such_and_does_not_end_the_term(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term), await psycopg.AsyncConnection.connect(postgres_url) as pg:
        await pg.execute("UPDATE fencehold_leases SET expires_at = clock_timestamp() + interval '1 ms'")
        await pg.commit()
        await pg.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await pg.execute("SELECT count(*), pg_sleep(0.002) FROM t")
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as keeper:
            await keeper.execute("UPDATE fencehold_leases SET expires_at = clock_timestamp() + interval '30 s'")
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await term.fence(pg)
        assert caught.value.code == "snapshot_too_old"
        assert term.is_valid
        await pg.rollback()


async def test_a_mistake_in_the_callers_statement_is_not_called_a_broken_connection(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):

        async def twice(tx: Any) -> None:
            await tx.execute("CREATE TABLE u (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            await tx.execute("INSERT INTO u VALUES (1), (1)")

        with pytest.raises(psycopg.ProgrammingError):
            await within(term, lambda tx: tx.execute("INSERT INTO t VALUES (%s)", [1, 2]))
        with pytest.raises(psycopg.errors.UniqueViolation):
            await within(term, twice)
        assert term.is_valid


async def test_the_fence_takes_connections_with_row_factories_of_their_own(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):
        with psycopg.connect(postgres_url, row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.RawCursor) as conn:
            term.fence(conn)
            conn.execute("INSERT INTO t VALUES (1)")
    assert await rows(postgres_url) == 1


async def test_a_lease_of_a_year_can_be_fenced(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        async with store.leader("x", lease="365d") as leader:
            assert await leader.wait_for_leadership(10)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await tx.execute("CREATE TABLE t (a int)")


async def test_a_body_that_is_cut_short_commits_nothing_of_its_fenced_transaction(postgres_url: str) -> None:
    async with leading(postgres_url) as (_, term):
        async with await psycopg.AsyncConnection.connect(postgres_url) as pg, term:
            await term.fence(pg)
            await pg.execute("INSERT INTO t VALUES (1)")
            term.lost("for the test")
            await asyncio.Event().wait()
        assert not term.is_valid
    assert await rows(postgres_url) == 0


async def test_on_sqlite_a_body_that_is_cut_short_commits_nothing_either(sqlite_url: str) -> None:
    async with leading(sqlite_url) as (_, term):
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as conn:
            async with term:
                term.fence(conn)
                conn.execute("INSERT INTO t VALUES (1)")
                term.lost("for the test")
                await asyncio.Event().wait()
        assert conn.execute("SELECT count(*) FROM t").fetchone() == (0,)
        conn.close()


async def test_the_end_of_a_term_inside_a_task_group_is_swallowed_as_well(sqlite_url: str) -> None:
    async def stale(term: fencehold.Term) -> None:
        raise term.lost("for the test")

    async with leading(sqlite_url) as (_, term):
        async with term, asyncio.TaskGroup() as group:
            group.create_task(stale(term))
            group.create_task(asyncio.Event().wait())
        assert not term.is_valid
