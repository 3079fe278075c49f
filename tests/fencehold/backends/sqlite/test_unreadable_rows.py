"""Rows that plain SQL wrote and nobody can read: refused by the table, mended by init, survived by every reader."""

import json
import sqlite3
import uuid
from contextlib import closing
from typing import Any

import pytest

import fencehold
from tests.across_packages.upgrading import old_tables
from tests.fencehold.cli.cli_process import Command
from tests.fencehold.runtime.outbox.scene import Gate, running

LONG_AGO = "2020-01-01T00:00:00.000Z"
NO_TIMES = (
    "2020-02-30T00:00:00.000Z", "2020-02-28T24:00:00.000Z", "0000-01-01T00:00:00.000Z", "2020-13-01T00:00:00.000Z",
    "2020-01-01T10:61:00.000Z", "2020-01-01T10:00:00.  1Z", "    -  -  T  :  :  .   Z",
    "9999-12-31T00:00:00.000Z", "0001-01-01T00:00:00.000Z",
)  # fmt: skip
INSERT = "INSERT INTO outbox (tracking_id, event_type, payload, {column}) VALUES (?, 'a', '1', ?)"


def run(url: str, statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        return connection.execute(statement, params).fetchall()


def insert(url: str, column: str, value: str) -> str:
    tracking_id = str(uuid.uuid4())
    run(url, INSERT.format(column=column), tracking_id, value)
    return tracking_id


def without_triggers(url: str) -> None:
    """As the tables were before."""
    for name in ("insert", "update"):
        run(url, f"DROP TRIGGER IF EXISTS outbox_readable_{name}")


@pytest.mark.parametrize("column", ["created_at", "due_at"])
async def test_a_time_that_cannot_be_is_refused_at_insert_and_update(sqlite_url: str, column: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        store.outbox()
        await store.init()
        tracking_id = insert(sqlite_url, column, "2024-02-29T23:59:59.999Z")
        for value in NO_TIMES:
            with pytest.raises(sqlite3.IntegrityError):
                insert(sqlite_url, column, value)
            with pytest.raises(sqlite3.IntegrityError):
                run(sqlite_url, f"UPDATE outbox SET {column} = ?", value)
        with pytest.raises(sqlite3.IntegrityError, match="whole numbers"):
            insert(sqlite_url, "priority", "high")
        assert [row.tracking_id for row in await store.outbox().find()] == [tracking_id]


async def test_rows_that_nobody_can_read_stop_no_worker(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        outbox = store.outbox()
        await store.init()
        without_triggers(sqlite_url)
        due = [value for value in NO_TIMES if value < "3"]
        ids = [insert(sqlite_url, "due_at", value) for value in due]
        ids += [insert(sqlite_url, "created_at", value) for value in NO_TIMES]
        ids += [insert(sqlite_url, "priority", "high"), insert(sqlite_url, "retry_count", "x")]
        gate = Gate(is_open=True)
        async with running(outbox.worker(gate)):
            await gate.until(lambda: set(gate.done) >= set(ids))
        assert (await outbox.stats()).completed == len(ids)


async def test_text_that_is_not_utf8_keeps_nobody_from_the_other_events(sqlite_url: str) -> None:
    """As a program writes that takes its own encoding for SQLite's."""
    async with fencehold.connect(sqlite_url) as store:
        outbox = store.outbox(max_retries=1)
        await store.init()
        run(sqlite_url, INSERT.format(column="metadata"), "x", "{}")
        run(sqlite_url, "UPDATE outbox SET payload = CAST(x'22E922' AS TEXT)")
        well = await outbox.add("a", "é")
        claims = {claim.tracking_id: claim for claim in await outbox.claim(10, "me")}
        assert claims[well].payload == "é"
        with pytest.raises(json.JSONDecodeError):
            assert claims["x"].payload
        assert len(await outbox.find()) == 2


@pytest.mark.parametrize("arguments", [["outbox", "ls"], ["outbox", "stats"], ["outbox", "show", "{}"], ["doctor"]])
async def test_rows_that_nobody_can_read_stop_no_command(sqlite_url: str, arguments: list[str]) -> None:
    async with fencehold.connect(sqlite_url) as store:
        store.outbox()
        await store.init()
        without_triggers(sqlite_url)
        ids = [insert(sqlite_url, column, value) for value in NO_TIMES for column in ("due_at", "created_at")]
        insert(sqlite_url, "max_retries", "many")
        await store.outbox().reap()
    with Command(sqlite_url, *(word.format(ids[0]) for word in arguments)) as command:
        out, err = command.child.communicate(timeout=60)
    assert b"internal_error" not in out + err
    assert command.child.returncode in {0, 1}, (out, err)  # 1: the doctor sees that nobody handles them


async def test_init_mends_what_was_there_before_and_says_so_in_the_row(sqlite_url: str) -> None:
    old_tables.make_on_sqlite(sqlite_url.removeprefix("sqlite:///"))
    ids = [insert(sqlite_url, column, value) for value in NO_TIMES for column in ("due_at", "created_at")]
    insert(sqlite_url, "priority", "high")
    well = insert(sqlite_url, "due_at", LONG_AGO)
    async with fencehold.connect(sqlite_url) as store:
        store.outbox()
        await store.init()
        found = {row.tracking_id: row for row in await store.outbox().find()}
        assert all("which is no time" in (found[one].last_error or "") for one in ids)
        assert (found[well].last_error, found[well].due_at.year) == (None, 2020)
        assert len(await store.outbox().claim(100, "me")) == len(ids) + 2
    assert run(sqlite_url, "SELECT DISTINCT due_at FROM outbox WHERE due_at LIKE '2020-03%'") == [
        ("2020-03-01T00:00:00.000Z",)
    ]


async def test_an_item_whose_times_nobody_can_read_can_be_had(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        items = store.items("order")
        await store.init()
        for value in NO_TIMES:
            run(
                sqlite_url, "INSERT INTO fencehold_items (kind, id, state, state_timestamp, document) VALUES "
                "('order', ?, 'NEW', ?, '{}')", value, value,
            )  # fmt: skip
        assert len(await items.next_for_state("NEW", 20)) == len(NO_TIMES)
