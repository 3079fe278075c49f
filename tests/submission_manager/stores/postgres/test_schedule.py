"""PostgreSQL commits in another order than it stamps: the snapshot finds what the cursor alone would miss."""

import asyncio
import datetime as dt
from collections import Counter

import psycopg
import pytest

from fencehold.backends.postgres.own_tables import PostgresReader
from submission_manager.model.contracts import Policy
from submission_manager.model.intents import NewIntent, Status
from submission_manager.ports import NotNow
from submission_manager.stores import rows as mapping
from submission_manager.stores.postgres import PostgresSchedule
from tests.submission_manager.stores.scene import LIMIT_S, TWICE, Scene, contract, scene, statements

HELD_OPEN_S_MAX = 2.0
SUBMITTERS = 32
NAIVE = (
    "SELECT last_modified_at, intent_id FROM submission_intents"
    " WHERE (last_modified_at, intent_id) > (%s, %s) ORDER BY 1, 2"
)


def submission(*ids: str) -> dict[str, object]:
    """The parameters of the store's own statement."""
    news = [NewIntent(intent_id, b"{}", contract()) for intent_id in ids]
    return {
        **mapping.contract_params(contract()), "ids": list(ids), "payloads": [new.payload for new in news],
        "hashes": [mapping.payload_hash(new.payload) for new in news],
    }  # fmt: skip


def statement(at: Scene, name: str) -> str:
    return statements(at.url)[name]


async def submit_and_hold(at: Scene, intent_id: str, hold_s: float) -> None:
    async with await psycopg.AsyncConnection.connect(at.url) as connection:
        await connection.execute(statement(at, "submit"), submission(intent_id))
        await asyncio.sleep(hold_s)  # the rest of somebody's transaction; leaving the block commits


async def naive_look(at: Scene, cursor: tuple[dt.datetime, str], seen: set[str]) -> tuple[dt.datetime, str]:
    """Spec 000's cursor and nothing else."""
    async with await psycopg.AsyncConnection.connect(at.url) as connection:
        found = await (await connection.execute(NAIVE, cursor)).fetchall()
    seen.update(intent_id for _, intent_id in found)
    return found[-1] if found else cursor


async def test_transactions_held_open_for_two_seconds_are_missed_by_the_cursor_alone_and_not_by_the_refresh(tables_url):
    async with scene(tables_url) as at:
        _, cursor = await at.rebuilt()
        naive_cursor, naive_seen = (dt.datetime(2000, 1, 1, tzinfo=dt.UTC), ""), set[str]()
        seen: Counter[str] = Counter()
        # Whoever stamps first commits last.
        holds_s = [HELD_OPEN_S_MAX * (1 - n / SUBMITTERS) for n in range(SUBMITTERS)]
        work = asyncio.gather(*(submit_and_hold(at, f"i{n:02}", hold) for n, hold in enumerate(holds_s)))
        while True:
            is_last_look = work.done()
            naive_cursor = await naive_look(at, naive_cursor, naive_seen)
            found, cursor = await at.refreshed(cursor, page_rows=3)
            seen.update(row.intent_id for row in found)
            if is_last_look:
                break
            await asyncio.wait([work], timeout=0.05)
        await work
        assert len(naive_seen) < SUBMITTERS, "the control missed nothing, so this test shows nothing"
        assert sorted(seen) == [f"i{n:02}" for n in range(SUBMITTERS)]
        assert set(seen.values()) == {1}, "nor is anything read twice"


async def test_a_transaction_that_stays_open_does_not_make_the_refresh_repeat_itself(tables_url):
    async with scene(tables_url) as at:
        _, cursor = await at.rebuilt()
        async with await psycopg.AsyncConnection.connect(at.url) as connection:
            await connection.execute(statement(at, "submit"), submission("open"))
            for n in range(5):
                await at.submit(f"i{n}")
            found, cursor = await at.refreshed(cursor, page_rows=2)
            assert [row.intent_id for row in found] == [f"i{n}" for n in range(5)]
            assert (await at.refreshed(cursor))[0] == []
        found, cursor = await at.refreshed(cursor)
        assert [row.intent_id for row in found] == ["open"]


async def test_what_commits_between_two_pages_of_one_round_is_in_the_next_round(tables_url):
    async with scene(tables_url) as at:
        await at.submit("a-first")
        _, cursor = await at.rebuilt()
        async with await psycopg.AsyncConnection.connect(at.url) as connection:
            await connection.execute(statement(at, "submit"), submission("late"))
            for n in range(4):
                await at.submit(f"i{n}")
            page = await at.store.schedule.refresh(cursor, 2, LIMIT_S)
            assert [row.intent_id for row in page.rows] == ["i0", "i1"]
        found, _ = await at.refreshed(page.cursor, page_rows=2)
        rest, _ = await at.refreshed(_, page_rows=2)
        assert [row.intent_id for row in found + rest] == ["i2", "i3", "late"]


@pytest.mark.parametrize("name", ["mark", "settle", "told"])
async def test_every_kind_of_write_is_found_when_it_commits_late(tables_url, name):
    async with scene(tables_url) as at:
        await at.submit("a", TWICE)
        if name == "told":
            at.sql(
                "UPDATE submission_intents SET status = 'accepted', completed_at = created_at, next_attempt_at = NULL"
            )
        _, cursor = await at.rebuilt()
        params = dict.fromkeys(("error", "next_attempt_at", "outcome_status", "outcome_reason", "exhausted_reason"))
        values = {
            "id": "a",
            "epoch": 1,
            "holder": "x",
            "status": "failed" if name == "told" else "accepted",
            "wait_ms": 0,
        }
        async with await psycopg.AsyncConnection.connect(at.url) as connection:
            now = (await (await connection.execute("SELECT clock_timestamp()")).fetchone() or (None,))[0]
            times = {"now": now, "completed_at": now, "attempt_count": 1}
            await connection.execute(statement(at, name), {**params, **values, **times})
            await at.submit("b")
            found, cursor = await at.refreshed(cursor)
            assert [row.intent_id for row in found] == ["b"]
        assert [row.intent_id for row in (await at.refreshed(cursor))[0]] == ["a"]


async def test_a_rolled_back_submission_is_never_seen(tables_url):
    async with scene(tables_url) as at:
        _, cursor = await at.rebuilt()
        connection = await psycopg.AsyncConnection.connect(at.url)
        await connection.execute(statement(at, "submit"), submission("gone"))
        await connection.rollback()
        await connection.close()
        await at.submit("kept")
        assert [row.intent_id for row in (await at.refreshed(cursor))[0]] == ["kept"]


async def test_other_instances_hear_of_a_submission(tables_url):
    async with scene(tables_url) as at:
        heard = asyncio.Event()
        other = await at.another()
        other.schedule.on_submitted(heard.set)
        assert await other.schedule.listen(LIMIT_S)
        await at.submit("a")
        await asyncio.wait_for(heard.wait(), LIMIT_S)
        heard.clear()
        async with await psycopg.AsyncConnection.connect(at.url) as connection:
            await connection.execute(statement(at, "submit"), submission("a"))  # known: nothing to tell
            await connection.execute(statement(at, "submit"), submission("b"))
            assert not heard.is_set(), "not before it is committed"
        await asyncio.wait_for(heard.wait(), LIMIT_S)


@pytest.mark.parametrize("name", ["refresh", "pending", "horizon", "left_open"])
async def test_the_schedule_reads_by_its_indexes_whatever_the_statistics_say(tables_url, name):
    async with scene(tables_url) as at:
        await at.submit("a")
        schedule = at.store.schedule
        assert isinstance(schedule, PostgresSchedule)
        await at.rebuilt()
        assert isinstance(schedule._reader, PostgresReader)
        session = schedule._reader._session
        long_ago = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
        params = dict.fromkeys(("from_at", "after_at", "floor_at"), long_ago) | dict.fromkeys(
            ("from_id", "after_id", "floor_id"), ""
        )
        assert session._connection is not None
        text = "EXPLAIN " + statement(at, name)
        cursor = await session._connection.execute(
            text, {**params, "seen": "1:1:", "limit": 100, "epoch": 1, "holder": "x"}
        )
        plan = "\n".join(row[0] for row in await cursor.fetchall())
        assert "Seq Scan" not in plan
        assert ("Index Cond: (modified_xid >=" in plan) == (name == "refresh")


async def test_the_clock_is_read_when_the_row_is_ours_and_not_before(tables_url, monkeypatch):
    """A start that waits for the row past the deadline finds the deadline passed."""
    monkeypatch.setattr("submission_manager.stores.attempts.LOCK_WAIT_MS", 20_000)
    async with scene(tables_url) as at:
        term = await at.term()
        await at.submit("a", contract(Policy.DEADLINE, max_acceptance_seconds=1))
        async with await psycopg.AsyncConnection.connect(at.url) as connection:
            await connection.execute("SELECT FROM submission_intents WHERE intent_id = 'a' FOR UPDATE")
            waiting = asyncio.ensure_future(at.store.attempts.start(term, "a", 5.0))
            await connection.execute("SELECT pg_sleep_until(created_at + interval '1.1 s') FROM submission_intents")
            assert not waiting.done()
        answer = await waiting
        assert isinstance(answer, NotNow)
        assert answer.status is Status.EXHAUSTED
