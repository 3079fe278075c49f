"""A run that does not come to its end leaves nothing either, or says what is left."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from fencehold.model.errors import Unavailable
from fencehold.verify.journal import Fault, Journal
from fencehold.verify.plan import Plan
from fencehold.verify.run import run
from tests.verify.scene import tables

CREATES_SQL = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE SCHEMA%'"


class Silent:
    def say(self, text: str) -> None: ...

    def fault(self, at_s: float, fault: Fault) -> None: ...

    def status(self, at_s: float, journal: Journal) -> None: ...


@asynccontextmanager
async def no_schema_can_be_made(url: str) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("LOCK TABLE pg_namespace IN SHARE MODE")
        yield


async def until_a_row(url: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, asyncio.timeout(30):
        rows: Sequence[Any] = []
        while not rows:
            rows = await (await connection.execute(statement)).fetchall()


async def test_a_cancel_while_the_schema_is_made_leaves_no_schema(postgres_url: str) -> None:
    before = tables(postgres_url)
    async with no_schema_can_be_made(postgres_url):
        task = asyncio.create_task(run(Plan(postgres_url), Silent()))
        await until_a_row(postgres_url, CREATES_SQL)
        task.cancel()
        await asyncio.wait([task], timeout=0.5)  # a run that does not wait for the statement is over by then
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert tables(postgres_url) == before


async def test_a_cancel_before_anything_was_made_waits_for_no_database() -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1") as silent:
        port = silent.sockets[0].getsockname()[1]
        task = asyncio.create_task(run(Plan(f"postgresql://nobody@127.0.0.1:{port}/none"), Silent()))
        await asyncio.wait([task], timeout=0.1)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done == {task}


class Undroppable:
    """A place whose database goes away for good once it is made."""

    left: Sequence[str] = ()

    async def make(self) -> None: ...

    async def drop(self) -> str | None:
        return "DROP SCHEMA fencehold_verify_1 CASCADE"


async def test_what_is_left_after_an_error_is_named_in_its_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("The database went away.", hint="Wait.")

    monkeypatch.setattr("fencehold.verify.run.scratch_of", lambda _: Undroppable())
    monkeypatch.setattr("fencehold.verify.run.make_tables", away)
    with pytest.raises(Unavailable) as raised:
        await run(Plan("postgresql://db/app"), Silent())
    assert raised.value.hint == "Wait. DROP SCHEMA fencehold_verify_1 CASCADE"
