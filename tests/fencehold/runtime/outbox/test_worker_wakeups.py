"""How soon a worker hears of events: at once by a hint, at the next poll without one."""

import asyncio
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres.outbox.events import PostgresEventPort
from fencehold.backends.sqlite.outbox.events import SqliteEventPort
from fencehold.backends.sqlserver.outbox.events import SqlServerEventPort
from fencehold.ports.events import Turn
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import Gate, all_are, becomes, dialect, eventually, lapse, running
from tests.servers.postgres import PostgresServer

PORTS = (PostgresEventPort, SqliteEventPort, SqlServerEventPort)
BY_HAND = {
    "postgresql": "INSERT INTO outbox (event_type, payload) VALUES ('a', '{}')",
    "sqlite": "INSERT INTO outbox (tracking_id, event_type, payload)"
    " VALUES ('018f0000-0000-7000-8000-000000000001', 'a', '{}')",
    "mssql": "INSERT INTO outbox (event_type, payload) VALUES ('a', '{}')",
}


async def idle(outbox: fencehold.Outbox, gate: Gate, url: str) -> None:
    """Until the worker has handled one event and asked for more in vain."""
    await becomes(url, await outbox.add("warm up", 0), "COMPLETED")


async def test_a_new_event_is_handled_at_once_however_rare_polls_are(pg_or_sqlite_url: str, opened: Opened) -> None:
    url = pg_or_sqlite_url
    async with opened(url) as (outbox, heard):
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate, poll_every="1h")):
            await heard.once("worker_started")
            await idle(outbox, gate, url)
            for n in range(5):
                async with asyncio.timeout(5):
                    await becomes(url, await outbox.add("a", n), "COMPLETED")


async def test_an_event_of_another_process_s_transaction_wakes_when_that_commits(
    schema_url: str, opened: Opened
) -> None:
    async with opened(schema_url) as (outbox, heard):
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate, poll_every="1h")):
            await heard.once("worker_started")
            await idle(outbox, gate, schema_url)
            async with await psycopg.AsyncConnection.connect(schema_url) as tx:
                event = await outbox.add("a", 1, tx=tx)
                assert len(gate.entered) == 1, "not committed, so not there"
                await tx.commit()
                await becomes(schema_url, event, "COMPLETED", 5)


async def test_a_poll_finds_what_plain_sql_inserted(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate, poll_every="50ms")):
            await heard.once("worker_started")
            await execute(url, BY_HAND[dialect(url)])
            await all_are(url, "COMPLETED", 1)
        assert gate.entered[0].payload == {}


@pytest.mark.parametrize("what", ["redrive", "retry", "reap"])
async def test_what_becomes_pending_again_wakes_too(pg_or_sqlite_url: str, opened: Opened, what: str) -> None:
    url = pg_or_sqlite_url
    async with opened(url) as (outbox, heard):
        gate = Gate(is_open=True)
        event = await outbox.add("a", 1)
        (claim,) = await outbox.claim(1, "other")
        async with running(outbox.worker(gate, poll_every="1h")):
            await heard.once("worker_started")
            await idle(outbox, gate, url)
            if what == "reap":
                await lapse(url)
                await outbox.reap()
            else:
                await outbox.fail(claim, "no", retry=False)
                await (outbox.redrive("a", "mended") if what == "redrive" else outbox.retry([event]))
            await becomes(url, event, "COMPLETED", 5)


async def test_a_hint_that_comes_while_a_claim_is_under_way_is_not_forgotten(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim has not seen the event, and its empty answer must not wipe out the hint."""
    added: list[str] = []
    async with opened(url) as (outbox, heard):
        for port in PORTS:
            real = port.turn

            async def turn(self: Any, completed: Any, ask: Any, limit_s: float, real: Any = real) -> Turn:
                answer: Turn = await real(self, completed, ask, limit_s)
                if ask and not answer.claims and not added:
                    added.append(await outbox.add("a", 1))
                    for hint in hints:
                        hint()
                return answer

            monkeypatch.setattr(port, "turn", turn)
        gate = Gate(is_open=True)
        worker = outbox.worker(gate, poll_every="1h")
        hints = [worker._hint]
        async with running(worker):
            await heard.once("worker_started")

            async def is_added() -> list[str]:
                return added

            (event,) = await eventually(is_added)
            await becomes(url, event, "COMPLETED", 5)


async def test_a_worker_hears_again_after_the_database_was_restarted(own_postgres: PostgresServer) -> None:
    async with fencehold.connect(own_postgres.dsn()) as store:
        outbox = store.outbox(lease="5s")
        await store.init()
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate, poll_every="1h")):
            await idle(outbox, gate, own_postgres.dsn())
            await asyncio.to_thread(own_postgres.restart)

            async def add() -> Any:
                try:
                    return await outbox.add("a", 1)
                except fencehold.FenceholdError:
                    return None

            await becomes(own_postgres.dsn(), await eventually(add), "COMPLETED", 10)


async def test_an_event_that_was_committed_late_is_not_overlooked(schema_url: str, opened: Opened) -> None:
    """Its place in the queue lies before the last event that was claimed."""
    async with opened(schema_url) as (outbox, heard):
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate, poll_every="100ms")):
            await heard.once("worker_started")
            async with await psycopg.AsyncConnection.connect(schema_url) as tx:
                late = await outbox.add("a", "late", tx=tx)
                for n in range(3):
                    await becomes(schema_url, await outbox.add("a", n), "COMPLETED")
                await tx.commit()
            await becomes(schema_url, late, "COMPLETED", 5)
