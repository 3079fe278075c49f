"""SQL Server commits in another order than it stamps: the row version finds what the cursor alone would miss."""

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.servers.sqlserver import open_connection
from tests.submission_manager.stores.scene import LIMIT_S, TWICE, Scene, scene
from tests.submission_manager.stores.sqlserver.others import execute, reads_wait, statement, submission, transaction

HELD_OPEN_S_MAX = 2.0
SUBMITTERS = 32
CROWD_LIMIT_S = 300.0  # for all of them to be ready
#: Spec 000's cursor and nothing else; READPAST: nor does it wait for anybody.
NAIVE = """
DECLARE @at datetime2(7) = :at, @id nvarchar(400) = :id;
SELECT CONVERT(nvarchar(27), last_modified_at, 126), intent_id
  FROM submission_intents WITH (READCOMMITTEDLOCK, READPAST)
 WHERE last_modified_at >= @at AND (last_modified_at > @at OR intent_id > @id)
 ORDER BY last_modified_at, intent_id
"""


class Naive:
    def __init__(self, url: str) -> None:
        self._connection = open_connection(url)
        self._place = ("1970-01-01T00:00:00", "")
        self.seen: set[str] = set()

    def look(self) -> None:
        found = execute(self._connection, NAIVE, {"at": self._place[0], "id": self._place[1]})
        self.seen.update(intent_id for _, intent_id in found)
        self._place = found[-1] if found else self._place


def submit_and_hold(at: Scene, ready: threading.Barrier, intent_id: str, hold_s: float) -> None:
    with closing(open_connection(at.url)) as connection:
        connection.timeout = int(CROWD_LIMIT_S)
        text = statement(at, "submit")
        execute(connection, "BEGIN TRANSACTION")
        execute(connection, text, submission(f"{intent_id}-before"))  # its first takes longest
        execute(connection, "ROLLBACK TRANSACTION")
        ready.wait(CROWD_LIMIT_S)
        execute(connection, "BEGIN TRANSACTION")
        execute(connection, text, submission(intent_id))
        time.sleep(hold_s)  # the rest of somebody's transaction
        execute(connection, "COMMIT TRANSACTION")


@pytest.mark.limit(2 * CROWD_LIMIT_S)
async def test_transactions_held_open_for_two_seconds_are_missed_by_the_cursor_alone_and_not_by_the_refresh(
    sqlserver_tables_url,
):
    async with scene(sqlserver_tables_url) as at:
        _, cursor = await at.rebuilt()
        naive = Naive(at.url)
        seen: Counter[str] = Counter()
        # Whoever stamps first commits last.
        holds_s = [HELD_OPEN_S_MAX * (1 - n / SUBMITTERS) for n in range(SUBMITTERS)]
        ready = threading.Barrier(SUBMITTERS)
        with ThreadPoolExecutor(SUBMITTERS) as crowd:
            work = [crowd.submit(submit_and_hold, at, ready, f"i{n:02}", hold) for n, hold in enumerate(holds_s)]
            while True:
                is_last_look = all(one.done() for one in work)
                await asyncio.to_thread(naive.look)
                found, cursor = await at.refreshed(cursor, page_rows=3)
                seen.update(row.intent_id for row in found)
                if is_last_look:
                    break
            for one in work:
                one.result()
        assert len(naive.seen) < SUBMITTERS, "the control missed nothing, so this test shows nothing"
        assert sorted(seen) == [f"i{n:02}" for n in range(SUBMITTERS)]


async def test_a_transaction_that_stays_open_holds_up_nothing_and_is_found_when_it_commits(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        if reads_wait(at):
            pytest.skip("without READ_COMMITTED_SNAPSHOT who reads waits for the open transaction")
        _, cursor = await at.rebuilt()
        async with transaction(at) as run:
            await run(statement(at, "submit"), submission("open"))
            for n in range(5):
                await at.submit(f"i{n}")
            found, cursor = await at.refreshed(cursor, page_rows=2)
            assert [row.intent_id for row in found] == [f"i{n}" for n in range(5)]
            again = await at.store.schedule.refresh(cursor, 100, LIMIT_S)
            assert {row.intent_id for row in again.rows} <= {f"i{n}" for n in range(5)}
        found, cursor = await at.refreshed(again.cursor)
        assert [row.intent_id for row in found] == ["open"]


async def test_what_commits_between_two_pages_of_one_round_is_in_the_next_round(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        if reads_wait(at):
            pytest.skip("without READ_COMMITTED_SNAPSHOT who reads waits for the open transaction")
        await at.submit("a-first")
        _, cursor = await at.rebuilt()
        async with transaction(at) as run:
            await run(statement(at, "submit"), submission("late"))
            for n in range(4):
                await at.submit(f"i{n}")
            page = await at.store.schedule.refresh(cursor, 2, LIMIT_S)
            assert [row.intent_id for row in page.rows] == ["i0", "i1"]
        found, cursor = await at.refreshed(page.cursor, page_rows=2)
        rest, cursor = await at.refreshed(cursor, page_rows=2)
        assert {row.intent_id for row in found + rest} >= {"i2", "i3", "late"}


@pytest.mark.parametrize("name", ["mark", "settle", "told"])
async def test_every_kind_of_write_is_found_when_it_commits_late(sqlserver_tables_url, name):
    async with scene(sqlserver_tables_url) as at:
        if reads_wait(at):
            pytest.skip("without READ_COMMITTED_SNAPSHOT who reads waits for the open transaction")
        await at.submit("a", TWICE)
        term = await at.term()
        made = {
            "settle": f"attempt_epoch = {term.epoch}, attempt_holder = 'first', attempt_started_at = created_at",
            "told": "status = 'accepted', completed_at = created_at, next_attempt_at = NULL",
        }
        if name in made:
            at.sql(f"UPDATE submission_intents SET {made[name]}")
        verdicts = '[{"from_at": "1970-01-01T00:00:00", "status": "accepted"}]'
        params = {
            "id": "a", "name": term.name, "holder": term.holder_id, "epoch": term.epoch, "wait_ms": 1000, "number": 1,
            "marker_epoch": term.epoch, "marker_holder": "first", "verdicts": verdicts, "retry_us": 0,
            "outcome_status": "", "outcome_reason": "", "error": "", "status": "failed",
        }  # fmt: skip
        _, cursor = await at.rebuilt()
        async with transaction(at) as run:
            ((verdict, *_),) = await run(statement(at, name), params)
            assert verdict in ("started", "settled", "told")
            await at.submit("b")
            found, cursor = await at.refreshed(cursor)
            assert [row.intent_id for row in found] == ["b"]
        assert [row.intent_id for row in (await at.refreshed(cursor))[0]] == ["a"]


async def test_a_rolled_back_submission_is_never_seen(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        _, cursor = await at.rebuilt()
        async with transaction(at) as run:
            await run(statement(at, "submit"), submission("gone"))
            await run("ROLLBACK TRANSACTION")
            await run("BEGIN TRANSACTION")
        await at.submit("kept")
        assert [row.intent_id for row in (await at.refreshed(cursor))[0]] == ["kept"]


async def test_rows_of_one_instant_finer_than_a_microsecond_are_read_once_each_and_not_for_ever(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        for n in range(7):
            await at.submit(f"i{n}")
        _, cursor = await at.rebuilt()
        # As a hand would do it that follows the spec: the instant of the server, with all of its seven digits.
        at.sql("UPDATE submission_intents SET last_modified_at = '2031-02-03T04:05:06.1234567'")
        found, cursor = await at.refreshed(cursor, page_rows=2)
        assert sorted(row.intent_id for row in found) == [f"i{n}" for n in range(7)]
        assert cursor.floor[0].startswith("2031-02-03T04:05:06")
        assert (await at.store.schedule.refresh(cursor, 2, LIMIT_S)).rows == []


async def test_nobody_is_told_of_a_submission_and_nobody_waits_for_it(sqlserver_tables_url):
    async with scene(sqlserver_tables_url) as at:
        assert await at.store.schedule.listen(LIMIT_S) is False
