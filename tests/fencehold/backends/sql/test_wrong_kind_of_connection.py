"""A connection to another kind of database, or of an unknown driver, is refused by a code, in words that help."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiosqlite
import asyncpg
import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import fencehold
from fencehold.backends.sql.callers.alchemy import is_sqlalchemy
from tests.fencehold.runtime.outbox.scene import code_of, own_connection


def of_driver(url: str, driver: str) -> str:
    return url.replace("sqlite://", f"sqlite+{driver}://").replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    """The async driver that is not ours, inside a transaction."""
    if url.startswith("sqlite:"):
        async with aiosqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None) as connection:
            await connection.execute("BEGIN")
            yield connection
    else:
        connection = await asyncpg.connect(url.partition("?")[0])
        async with connection.transaction():
            yield connection
        await connection.close()


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(of_driver(url, "pysqlite"))
    with sqlalchemy.orm.Session(engine) as opened, opened.begin():
        yield opened
    engine.dispose()


@asynccontextmanager
async def async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(of_driver(url, "aiosqlite"))
    async with AsyncSession(engine) as opened, opened.begin():
        yield opened
    await engine.dispose()


@asynccontextmanager
async def plain(url: str) -> AsyncIterator[Any]:
    connection = own_connection(url)
    yield connection
    connection.close()


Connect = Callable[[str], AbstractAsyncContextManager[Any]]


@pytest.mark.postgres  # also the store on SQLite is given a connection to PostgreSQL
@pytest.mark.parametrize("connect", [raw, session, async_session, plain], ids=lambda connect: connect.__name__)
async def test_a_connection_to_another_kind_of_database_is_refused_and_left_as_it_is(
    pg_or_sqlite_url: str, request: pytest.FixtureRequest, connect: Connect
) -> None:
    is_sqlite = pg_or_sqlite_url.startswith("sqlite:")
    other = str(request.getfixturevalue("schema_url" if is_sqlite else "file_url"))
    async with fencehold.connect(pg_or_sqlite_url) as store, connect(other) as tx:
        outbox = store.outbox()
        await store.init()
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(10)
            assert leader.term is not None
            for attempt in (
                lambda: outbox.add("a", 1, tx=tx),
                lambda: outbox.first_time("00000000-0000-0000-0000-000000000001", "me", tx=tx),
                lambda term=leader.term: _fenced(term, tx),
            ):
                with pytest.raises(fencehold.ConfigurationError, match=r"cannot (be|use) a ") as error:
                    await attempt()
                assert code_of(error) == "bad_connection"
                assert ("sqlite3" if is_sqlite else "to PostgreSQL") in error.value.hint
            assert leader.is_leader


async def _fenced(term: fencehold.Term, tx: Any) -> None:
    await term.fence(tx)


async def test_psycopg2_is_told_from_psycopg_3_also_under_django(schema_url: str) -> None:
    connection = type("connection", (), {"__module__": "psycopg2.extensions"})()
    wrapper = type(
        "DatabaseWrapper", (), {"__module__": "django.db.backends.postgresql.base", "connection": connection}
    )
    wrapper.ensure_connection = lambda self: None  # type: ignore[attr-defined]
    async with fencehold.connect(schema_url) as store:
        outbox = store.outbox()
        await store.init()
        for tx in (connection, wrapper()):
            with pytest.raises(fencehold.ConfigurationError, match=r"tx cannot be a psycopg2.extensions") as error:
                await outbox.add("a", 1, tx=tx)
            assert "psycopg 3 (not psycopg2)" in error.value.hint


def test_a_session_with_another_engine_for_each_table_is_not_refused_beforehand() -> None:
    """Which database it leads to is known only when it connects."""
    assert is_sqlalchemy(sqlalchemy.orm.Session(), "sqlite")
