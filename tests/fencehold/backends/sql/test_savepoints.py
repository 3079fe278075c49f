"""A fence that is refused inside a savepoint: rolling back to it does not bring the transaction back."""

import asyncio
import inspect
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from django.db import connections, transaction
from django.db.utils import load_backend
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import fencehold
from tests.fencehold.backends.sql.test_caller_mistakes import lapse, leading, rows
from tests.fencehold.testing.conformance.foreign_callers import ALIAS, django_settings, of_postgres
from tests.servers.postgres import AnyPostgres, fresh_database

BEGUN, WRITE = "CREATE TABLE IF NOT EXISTS t (a int)", "INSERT INTO t VALUES (1)"
SET, BACK = "SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine"
REFUSED = (fencehold.LeaseLost, fencehold.ConfigurationError)

Fence = Callable[[Any], Any]


# Programs that swallow what the fence raises around a savepoint, and write on. Each takes a URL and the fence.


def session(driver: str, url: str, fence: Fence) -> None:
    with Session(sqlalchemy.create_engine(driver + url)) as session, session.begin():
        with suppress(*REFUSED), session.begin_nested():
            fence(session)
        session.execute(text(WRITE))


def connection(driver: str, url: str, fence: Fence) -> None:
    with sqlalchemy.create_engine(driver + url).connect() as conn:
        conn.execute(text(BEGUN))
        with suppress(*REFUSED), conn.begin_nested():
            fence(conn)
        conn.execute(text(WRITE))
        conn.commit()


def connection_by_hand(driver: str, url: str, fence: Fence) -> None:
    with sqlalchemy.create_engine(driver + url).begin() as conn:
        conn.execute(text(SET))
        with suppress(*REFUSED):
            fence(conn)
        conn.execute(text(BACK))
        conn.execute(text(WRITE))


async def async_session(driver: str, url: str, fence: Fence) -> None:
    async with AsyncSession(create_async_engine(driver + url)) as session, session.begin():
        with suppress(*REFUSED):
            async with session.begin_nested():
                await fence(session)
        await session.execute(text(WRITE))


async def async_connection(driver: str, url: str, fence: Fence) -> None:
    async with create_async_engine(driver + url).connect() as conn:
        await conn.execute(text(BEGUN))
        with suppress(*REFUSED):
            async with conn.begin_nested():
                await fence(conn)
        await conn.execute(text(WRITE))
        await conn.commit()


async def async_by_hand(driver: str, url: str, fence: Fence) -> None:
    async with create_async_engine(driver + url).begin() as conn:
        await conn.execute(text(SET))
        with suppress(*REFUSED):
            await fence(conn)
        await conn.execute(text(BACK))
        await conn.execute(text(WRITE))


def by_hand(connect: Callable[[str], Any], url: str, fence: Fence) -> None:
    with closing(connect(url)) as conn:
        conn.execute(BEGUN)
        conn.execute(SET)
        with suppress(*REFUSED):
            fence(conn)
        conn.execute(BACK)
        conn.execute(WRITE)
        conn.commit()


async def psycopg_async_by_hand(url: str, fence: Fence) -> None:
    async with await psycopg.AsyncConnection.connect("postgresql" + url) as conn:
        await conn.execute(SET)
        with suppress(*REFUSED):
            await fence(conn)
        await conn.execute(BACK)
        await conn.execute(WRITE)


def django(url: str, fence: Fence) -> None:
    is_file = url.startswith(":///")
    asked = django_settings("sqlite3", url.removeprefix(":///")) if is_file else of_postgres("postgresql" + url)
    with closing(load_backend(asked["ENGINE"]).DatabaseWrapper(asked, ALIAS)) as wrapper:
        connections[ALIAS] = wrapper
        with transaction.atomic(ALIAS):
            wrapper.cursor().execute(BEGUN)
            with suppress(*REFUSED), transaction.atomic(ALIAS):
                fence(wrapper)
            wrapper.cursor().execute(WRITE)


class Autocommit(sqlite3.Connection):
    """As with `autocommit=True` from Python 3.12 on: rollback() does nothing."""

    autocommit = True

    def rollback(self) -> None:
        return None


def of_psycopg(url: str) -> Any:
    return psycopg.connect("postgresql" + url)


def of_sqlite3(url: str) -> Any:
    return sqlite3.connect(url.removeprefix(":///"))


ON_POSTGRES: list[Any] = [
    partial(session, "postgresql+psycopg"),
    partial(connection, "postgresql+psycopg"),
    partial(connection_by_hand, "postgresql+psycopg"),
    partial(async_session, "postgresql+psycopg"),
    partial(async_session, "postgresql+asyncpg"),
    partial(async_connection, "postgresql+psycopg"),
    partial(async_connection, "postgresql+asyncpg"),
    partial(async_by_hand, "postgresql+psycopg"),
    partial(async_by_hand, "postgresql+asyncpg"),
    partial(by_hand, of_psycopg),
    psycopg_async_by_hand,
    django,
]
ON_SQLITE: list[Any] = [
    partial(session, "sqlite"),
    partial(connection, "sqlite"),
    partial(async_session, "sqlite+aiosqlite"),
    partial(async_connection, "sqlite+aiosqlite"),
    partial(by_hand, of_sqlite3),
    django,
]


def title(program: Any) -> str:
    if not isinstance(program, partial):
        return str(program.__name__)
    given = program.args[0]
    return f"{program.func.__name__} {getattr(given, '__name__', given)}"


async def run(program: Callable[[str, Fence], Any], url: str, fence: Fence) -> str:
    """The name of the error that stopped the program, or "done"."""
    try:
        pending = await asyncio.to_thread(program, url[url.index(":") :], fence)
        if inspect.isawaitable(pending):
            await pending
    except Exception as error:
        return type(error).__name__
    return "done"


def rows_of_file(url: str) -> int:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
        return int(conn.execute("SELECT count(*) FROM t").fetchone()[0])


@pytest.mark.parametrize("program", ON_POSTGRES, ids=title)
async def test_a_stale_term_refused_inside_a_savepoint_commits_nothing(program: Any, postgres_url: str) -> None:
    async with leading(postgres_url) as (store, term):
        assert await run(program, postgres_url, term.fence) == "done"
        assert await rows(postgres_url) == 1, "while the term is valid the program works"
        await lapse(store)
        assert await run(program, postgres_url, term.fence) != "done"
        assert not term.is_valid
        assert await run(program, postgres_url, term.fence) != "done", "nor once it is known here that the term is over"
    assert await rows(postgres_url) == 1


@pytest.mark.parametrize("has_leases", [True, False], ids=["with leases", "without leases"])
async def test_nor_does_one_that_fenced_another_database(
    has_leases: bool, postgres_url: str, postgres_server: AnyPostgres
) -> None:
    with fresh_database(postgres_server) as elsewhere:
        with psycopg.connect(elsewhere) as conn:
            conn.execute(BEGUN)
        async with leading(postgres_url) as (_, term):
            if has_leases:
                async with leading(elsewhere, table=False):
                    pass
            done = [title(one) for one in ON_POSTGRES if await run(one, elsewhere, term.fence) == "done"]
            assert done == []
            assert term.is_valid
        assert await rows(elsewhere) == 0


@pytest.mark.parametrize("program", ON_SQLITE, ids=title)
async def test_on_sqlite_neither(program: Any, sqlite_url: str) -> None:
    async with leading(sqlite_url) as (store, term):
        assert await run(program, sqlite_url, term.fence) == "done"
        await lapse(store)
        assert await run(program, sqlite_url, term.fence) != "done"
    assert rows_of_file(sqlite_url) == 1


async def test_outside_savepoints_the_same_session_works_again_after_a_rollback(postgres_url: str) -> None:
    async with leading(postgres_url) as (store, term):
        await lapse(store)
        with psycopg.connect(postgres_url) as conn:
            conn.execute(WRITE)
            with pytest.raises(fencehold.LeaseLost):
                term.fence(conn)
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                conn.execute(WRITE)
            conn.rollback()
            conn.execute(WRITE)
    assert await rows(postgres_url) == 1


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_nothing_follows_a_body_that_was_cut_short_inside_a_savepoint(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    async with leading(url) as (_, term):
        with Session(sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))) as session:
            session.execute(text(WRITE))
            nested = session.begin_nested()
            async with term:
                term.fence(session)
                term.lost("for the test")
                await asyncio.Event().wait()
            for follow in (nested.commit, session.commit, lambda: session.execute(text(WRITE))):
                with pytest.raises(sqlalchemy.exc.InvalidRequestError):
                    follow()
            session.rollback()
            assert session.execute(text("SELECT count(*) FROM t")).scalar_one() == 0


async def test_a_fence_that_loses_a_race_inside_a_savepoint_commits_nothing_either(postgres_url: str) -> None:
    """In a repeatable read transaction the server then answers with a serialization failure."""
    async with leading(postgres_url) as (_, term):
        with psycopg.connect(postgres_url) as conn, psycopg.connect(postgres_url, autocommit=True) as other:
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            conn.execute("SELECT * FROM fencehold_leases")
            other.execute("UPDATE fencehold_leases SET lease_epoch = lease_epoch + 1")
            conn.execute(SET)
            with pytest.raises(fencehold.LeaseLost):
                term.fence(conn)
            with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
                conn.execute(BACK)
            conn.execute("COMMIT")
    assert await rows(postgres_url) == 0


async def test_a_refusal_undoes_a_transaction_that_rollback_would_leave_open(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    async with leading(sqlite_url) as (store, term):
        await lapse(store)
        with closing(sqlite3.connect(path, factory=Autocommit)) as conn:
            conn.execute("BEGIN IMMEDIATE")
            conn.execute(WRITE)
            with pytest.raises(fencehold.LeaseLost):
                term.fence(conn)
            assert not conn.in_transaction
        async with aiosqlite.connect(path, factory=Autocommit) as aio:
            await aio.execute("BEGIN IMMEDIATE")
            await aio.execute(WRITE)
            with pytest.raises(fencehold.LeaseLost):
                await term.fence(aio)
            assert not aio.in_transaction
    assert rows_of_file(sqlite_url) == 0
