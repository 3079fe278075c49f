"""A run that does not come to its end leaves nothing either, or says what is left."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencehold.model.errors import Unavailable
from fencehold.verify.faults import Aims, FaultInjector
from fencehold.verify.journal import Fault, Journal
from fencehold.verify.plan import Plan
from fencehold.verify.run import run
from fencehold.verify.scratch.postgres import PostgresScratch
from fencehold.verify.scratch.sqlite import SqliteScratch
from tests.fencehold.verify.scene import tables

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
    taken: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1") as silent:
        port = silent.sockets[0].getsockname()[1]
        task = asyncio.create_task(run(Plan(f"postgresql://nobody@127.0.0.1:{port}/none"), Silent()))
        await asyncio.wait([task], timeout=0.1)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        for writer in taken:
            writer.close()  # from Python 3.12 on, a server waits at its end for the connections that it took
        assert done == {task}


class Undroppable:
    """A place whose database goes away for good once it is made."""

    left: Sequence[str] = ()
    servers: Sequence[tuple[str, int]] = (("db", 5432),)

    async def make(self) -> None: ...

    async def drop(self) -> str | None:
        return "DROP SCHEMA fencehold_verify_1 CASCADE"


async def test_a_lock_that_the_database_does_not_give_is_no_fault_of_our_own(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencehold.verify.scratch.sqlite.BUSY_LIMIT_S", 0.05)
    file = SqliteScratch(Plan(f"sqlite:///{tmp_path}/app.db"))
    await file.make()
    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for scratch in (file, PostgresScratch(Plan(postgres_url))):  # the one is locked, the other has no such table
            with pytest.raises(Unavailable, match="could not be locked"):
                async with scratch.held_up("alpha"):
                    raise AssertionError("nothing is locked")


async def test_faults_go_on_after_one_that_met_a_database_that_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    done, is_second = [], asyncio.Event()

    async def do(_: FaultInjector, kind: str) -> None:
        done.append(kind)
        if len(done) == 1:
            raise Unavailable("The server was stopped.")
        is_second.set()

    monkeypatch.setattr(FaultInjector, "_do", do)
    plan = Plan("postgresql://db/app", faults=("slow",))
    injecting = asyncio.create_task(FaultInjector(plan, Undroppable(), None, Journal(), Aims()).run())  # type: ignore[arg-type]
    await asyncio.wait_for(is_second.wait(), 20)
    injecting.cancel()


async def test_what_is_left_after_an_error_is_named_in_its_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("The database went away.", hint="Wait.")

    monkeypatch.setattr("fencehold.verify.run.scratch_of", lambda _: Undroppable())
    monkeypatch.setattr("fencehold.verify.run.make_tables", away)
    with pytest.raises(Unavailable) as raised:
        await run(Plan("postgresql://db/app"), Silent())
    assert raised.value.hint == "Wait. DROP SCHEMA fencehold_verify_1 CASCADE"
