"""What only a file can get wrong: another file's connection, another form of time, a plan that reads it all."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fencehold.backends.sql.statements import OUTBOX, Statements
from fencehold.backends.sqlite.backend import SqliteBackend
from fencehold.backends.sqlite.outbox.events import SqliteEvents
from fencehold.model.errors import ConfigurationError
from fencehold.ports.events import Filter
from fencehold.testing.conformance.outbox.pair import claim, event

LIMIT_S = 5.0


@asynccontextmanager
async def outbox(path: Path, init: bool = True) -> AsyncIterator[SqliteEvents]:
    events = SqliteBackend(str(path), "fencehold_leases").events("fencehold_outbox")
    try:
        if init:
            await events.schema.init(LIMIT_S)
        yield events
    finally:
        await events.close()


async def stored(events: SqliteEvents) -> list[str]:
    return [row.tracking_id for row in await events.admin.find(Filter(), 100, LIMIT_S)]


async def test_on_a_sync_connection_the_event_is_written_before_anything_is_awaited(tmp_path: Path):
    async with outbox(tmp_path / "a.db") as events:
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            one = event()
            events.in_tx.add(connection, [one], "")
            assert connection.in_transaction
            connection.commit()
        assert await stored(events) == [one.tracking_id]


async def test_a_connection_to_another_file_is_refused_even_with_this_one_attached(tmp_path: Path):
    async with outbox(tmp_path / "a.db") as events, outbox(tmp_path / "b.db") as others:
        for name in (tmp_path / "b.db", ":memory:"):
            with contextlib.closing(sqlite3.connect(name)) as connection:
                connection.execute("ATTACH ? AS a", (str(tmp_path / "a.db"),))
                with pytest.raises(ConfigurationError, match="nothing was written") as caught:
                    await events.in_tx.add(connection, [event()], "")
                connection.commit()
            assert caught.value.code == "wrong_store"
        assert await stored(events) == await stored(others) == []


async def test_the_same_file_by_another_path_is_the_same_file(tmp_path: Path):
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    async with outbox(tmp_path / "a.db") as events:
        with contextlib.closing(sqlite3.connect(tmp_path / "link.db")) as connection:
            added = await events.in_tx.add(connection, [event()], "")
            connection.commit()
        assert await stored(events) == added


async def test_a_callers_factories_do_not_matter(tmp_path: Path):
    async with outbox(tmp_path / "a.db") as events:
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.row_factory = lambda cursor, row: {"row": row}
            connection.text_factory = bytes
            one = event()
            assert await events.in_tx.add(connection, [one, one], "") == [one.tracking_id]
            assert await events.in_tx.first_time(one.tracking_id, "mail", connection, "") is True
            assert await events.in_tx.first_time(one.tracking_id, "mail", connection, "") is False


async def test_a_file_with_somebody_elses_table_is_not_touched(tmp_path: Path):
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute('CREATE VIEW "FenceHold_Outbox_Reaper" AS SELECT 1')
    before = (tmp_path / "a.db").read_bytes()
    async with outbox(tmp_path / "a.db", init=False) as events:
        with pytest.raises(ConfigurationError) as caught:
            await events.schema.init(LIMIT_S)
    assert caught.value.code == "table_exists"
    assert (tmp_path / "a.db").read_bytes() == before


@pytest.mark.parametrize("column", ["due_at", "created_at", "locked_until", "processed_at"])
async def test_a_time_that_would_sort_wrongly_is_refused(tmp_path: Path, column: str):
    async with outbox(tmp_path / "a.db") as events:
        await events.port.add([event()], LIMIT_S)
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, pytest.raises(sqlite3.Error):
            connection.execute(f"UPDATE fencehold_outbox SET {column} = datetime('now', '+1 hour')")


async def test_a_claim_by_another_is_no_hint(tmp_path: Path):
    """Nobody wakes for every turn of a busy worker. The first look only learns what is there."""
    async with outbox(tmp_path / "a.db") as one, outbox(tmp_path / "a.db") as two:
        await two.port.add([event(), event()], LIMIT_S)
        looks: list[bool] = []
        look = one.hints._look

        def noted(connection: sqlite3.Connection) -> bool:
            looks.append(look(connection))
            return looks[-1]

        one.hints._look = noted  # type: ignore[method-assign]
        await one.hints.listen(LIMIT_S)
        for turn in range(3):
            await claim(two.port, f"turn {turn}", 1)
            count = len(looks)
            while len(looks) < count + 2:  # noqa: ASYNC110 - a look tells nobody
                await asyncio.sleep(0.01)
        assert not any(looks[1:])


PLANS = {
    "claim": ["fencehold_outbox_due_idx"],
    "claim_in_order": ["fencehold_outbox_due_idx", "fencehold_outbox_aggregate_idx"],
    "lapsed": ["fencehold_outbox_lapse_idx"],
    "complete": ["INTEGER PRIMARY KEY"],
    "renew": ["INTEGER PRIMARY KEY"],
    "release": ["INTEGER PRIMARY KEY"],
    "fail": ["INTEGER PRIMARY KEY"],
    "newest": ["SEARCH"],
}


@pytest.mark.parametrize("name", PLANS)
async def test_no_statement_of_a_worker_reads_the_whole_table(tmp_path: Path, name: str):
    statements = Statements("fencehold.backends.sqlite", "fencehold_outbox", topic=OUTBOX)
    async with outbox(tmp_path / "a.db"):
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            params = {
                "keys": "[]",
                "failures": "[]",
                "limit": 1,
                "token": "a",
                "lease": "+1 seconds",
                "types": None,
                "isolated": True,
                "suspects": 1,
            }
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statements[name]}", params)
            plan = [row[3] for row in rows if "json_each" not in row[3]]
    assert all(any(used in line for line in plan) for used in PLANS[name]), plan
    # No scan but that of an index in the order of the claim, which ends at the limit, and of the one suspect.
    scans = [line for line in plan if line.startswith("SCAN") and line != "SCAN suspect"]
    assert not [line for line in scans if "due_idx" not in line], plan
    assert not [line for line in plan if "TEMP B-TREE" in line], plan
