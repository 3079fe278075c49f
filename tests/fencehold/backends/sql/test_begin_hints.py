"""Outside of a transaction the hint names the way of the caller's own library; of another file, only files."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import fencehold
from tests.fencehold.backends.sql.test_wrong_kind_of_connection import of_driver


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(of_driver(url, "pysqlite"), isolation_level="AUTOCOMMIT")
    with sqlalchemy.orm.Session(engine) as opened:
        yield opened
    engine.dispose()


@asynccontextmanager
async def connection(url: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.create_engine(of_driver(url, "pysqlite"), isolation_level="AUTOCOMMIT")
    with engine.connect() as opened:
        yield opened
    engine.dispose()


@asynccontextmanager
async def async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(of_driver(url, "aiosqlite"), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as opened:
        yield opened
    await engine.dispose()


KINDS = [
    (session, "`with session.begin():`"),
    (connection, "`with connection.begin():`"),
    (async_session, "`async with session.begin():`"),
]


@pytest.mark.parametrize(("opened", "begin"), KINDS, ids=["session", "connection", "async_session"])
async def test_a_caller_with_sqlalchemy_outside_a_transaction_is_told_to_begin_in_its_words(
    opened: Any, begin: str, pg_or_sqlite_url: str
) -> None:
    async with fencehold.connect(pg_or_sqlite_url) as store, opened(pg_or_sqlite_url) as tx:
        outbox = store.outbox()
        await store.init()
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            with pytest.raises(fencehold.ConfigurationError) as fenced:
                await leader.term.fence(tx)
        with pytest.raises(fencehold.ConfigurationError) as added:
            await outbox.add("a", {}, tx=tx)
    assert (fenced.value.code, added.value.code) == ("fence_outside_transaction", "add_outside_transaction")
    for error in (fenced.value, added.value):
        assert begin in error.hint
        assert "conn.transaction()" not in error.hint
        assert "BEGIN IMMEDIATE" not in error.hint


async def test_of_another_file_the_refusal_speaks_of_files_and_of_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    async with fencehold.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        outbox = store.outbox()
        await store.init()
        with closing(sqlite3.connect(other)) as tx:
            tx.execute("CREATE TABLE t (x)")
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await outbox.add("a", {}, tx=tx)
    said = str(caught.value)
    assert (caught.value.code, str(other) in said) == ("wrong_store", True)
    for word in ("repeatable read", "PostgreSQL", "search_path"):
        assert word not in said
