"""The leader's schedule misses no change, however late it was committed and whatever the clock did."""

import asyncio
import datetime as dt
import sqlite3
from collections import Counter

import pytest

from fencehold.backends.sqlite.own_tables import SqliteOwnTables
from fencehold.model.errors import FenceholdError
from submission_manager.model.intents import NewIntent
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Cursor, LeftOpen, Started
from submission_manager.stores.opening import Store, open_store
from tests.submission_manager.stores.scene import LIMIT_S, TWICE, contract, scene


async def test_a_rebuild_is_every_pending_intent_in_pages_and_the_refresh_goes_on_from_there(url):
    async with scene(url) as at:
        for n in range(23):
            await at.submit(f"i{n:02}", contract(gateway_url=f"http://gateway-{n % 2}.test"))
        rows, cursor = await at.rebuilt(page_rows=5)
        assert sorted(row.intent_id for row in rows) == [f"i{n:02}" for n in range(23)]
        assert Counter(row.gateway_url for row in rows) == {"http://gateway-0.test": 12, "http://gateway-1.test": 11}
        assert all(row.due_at == row.last_modified_at for row in rows)
        assert await at.refreshed(cursor) == ([], cursor) or at.dialect != "sqlite"
        await at.submit("later")
        rows, _ = await at.refreshed(cursor)
        assert [row.intent_id for row in rows] == ["later"]


async def test_an_empty_database_has_one_empty_page_and_then_what_comes(url):
    async with scene(url) as at:
        pages = [page async for page in at.store.schedule.rebuild(10, LIMIT_S)]
        assert [page.rows for page in pages] == [[]]
        await at.submit("a")
        rows, _ = await at.refreshed(pages[0].cursor)
        assert [row.intent_id for row in rows] == ["a"]


async def test_a_page_of_exactly_all_there_is_ends_with_an_empty_one(url):
    async with scene(url) as at:
        for n in range(6):
            await at.submit(f"i{n}")
        pages = [page async for page in at.store.schedule.rebuild(3, LIMIT_S)]
        assert [len(page.rows) for page in pages] == [3, 3, 0]


async def test_what_changes_during_a_rebuild_is_in_it_or_in_the_refresh_after_it(url):
    async with scene(url) as at:
        term = await at.term()
        for n in range(10):
            await at.submit(f"i{n}", TWICE)
        cursor: Cursor | None = None
        due: dict[str, dt.datetime | None] = {}
        async for page in at.store.schedule.rebuild(4, LIMIT_S):
            due |= {row.intent_id: row.due_at for row in page.rows}
            cursor = page.cursor
            if "new" not in due:
                await at.submit("new")
                for name in ("i0", "i9"):
                    start = await at.store.attempts.start(term, name, 600.0)
                    if isinstance(start, Started):
                        await at.store.attempts.record(term, start, Outcome(Answer.ERROR), 600.0)
        assert cursor is not None
        rows, _ = await at.refreshed(cursor)
        due |= {row.intent_id: row.due_at for row in rows}
        assert len(due) == 11
        assert {name: due[name] for name in ("i0", "i9")} == {
            row.intent_id: row.due_at for row in (await at.rebuilt())[0] if row.intent_id in ("i0", "i9")
        }


SAME_STAMP = {
    "sqlite": "UPDATE submission_intents SET last_modified_at = :past, modified_seq = modified_seq + 1000",
    "postgres": "UPDATE submission_intents SET last_modified_at = :past, modified_xid = pg_current_xact_id()",
    "sqlserver": "UPDATE submission_intents SET last_modified_at = :past",
}


@pytest.mark.parametrize("page_rows", [1, 3, 7])
async def test_rows_of_the_same_instant_are_not_skipped_between_pages(url, page_rows):
    async with scene(url) as at:
        for n in range(20):
            await at.submit(f"i{n:02}")
        _, cursor = await at.rebuilt()
        latest = (await at.submit("latest")).intent.created_at
        at.sql(SAME_STAMP[at.dialect], past=at.stamp(latest.replace(year=latest.year + 1)))
        rows, cursor = await at.refreshed(cursor, page_rows)
        assert sorted(row.intent_id for row in rows) == sorted([f"i{n:02}" for n in range(20)] + ["latest"])
        assert (await at.refreshed(cursor, page_rows))[0] == []


async def test_a_row_stamped_before_the_cursor_is_found_all_the_same(url):
    async with scene(url) as at:
        for n in range(5):
            await at.submit(f"i{n}")
        read, cursor = await at.rebuilt()
        at.sql(SAME_STAMP[at.dialect], past=at.stamp(read[-1].last_modified_at.replace(year=2001)))
        rows, cursor = await at.refreshed(cursor, page_rows=2)
        assert sorted(row.intent_id for row in rows) == [f"i{n}" for n in range(5)]
        assert (await at.refreshed(cursor))[0] == []


@pytest.mark.fault("server-clock", "service", "sqlite")
async def test_on_sqlite_a_clock_that_steps_back_hides_nothing(sqlite_url):
    async with scene(sqlite_url) as at:
        await at.submit("before")
        (read,), cursor = await at.rebuilt()
        assert isinstance(at.store, Store)
        assert isinstance(at.store._tables, SqliteOwnTables)
        writer = at.store._tables._writer.connection(LIMIT_S)
        writer.create_function("strftime", -1, lambda *_: "2001-01-01T00:00:00.000Z")
        stepped_back = await at.submit("after")
        assert stepped_back.intent.created_at < read.last_modified_at
        rows, cursor = await at.refreshed(cursor)
        assert [row.intent_id for row in rows] == ["after"]
        assert (await at.refreshed(cursor))[0] == []


async def test_on_sqlite_the_last_written_row_cannot_be_deleted_and_its_number_not_given_twice(sqlite_url):
    async with scene(sqlite_url) as at:
        await at.submit("a")
        await at.submit("b")
        with pytest.raises(sqlite3.IntegrityError):
            at.sql("DELETE FROM submission_intents WHERE intent_id = 'b'")
        at.sql("DELETE FROM submission_intents WHERE intent_id = 'a'")
        assert len((await at.rebuilt())[0]) == 1


async def test_on_sqlite_thirty_two_submitters_are_all_seen(sqlite_url):
    async with scene(sqlite_url) as at:
        _, cursor = await at.rebuilt()
        stores = [await at.another() for _ in range(4)]

        async def submitter(n: int) -> None:
            for k in range(5):
                await stores[n % 4].intake.submit(NewIntent(f"{n}-{k}", None, contract()), LIMIT_S)

        work = asyncio.gather(*(submitter(n) for n in range(32)))
        seen: Counter[str] = Counter()
        while True:
            was_done = work.done()  # before the look: what is stored during it is for the next
            rows, cursor = await at.refreshed(cursor, page_rows=50)
            seen.update(row.intent_id for row in rows)
            if was_done and not rows:
                break
        await work
        assert len(seen) == 160
        assert set(seen.values()) == {1}


async def test_a_database_without_the_tables_is_an_error_and_not_an_empty_schedule(empty_url):
    store = open_store(empty_url)
    try:
        with pytest.raises(FenceholdError) as caught:
            async for _ in store.schedule.rebuild(10, LIMIT_S):
                pass
        assert caught.value.code == "schema_missing"
    finally:
        await store.close()


async def test_attempts_that_another_term_left_open_are_counted_and_named_by_number(url):
    async with scene(url) as at:
        for name in "abcd":
            await at.submit(name, TWICE)
        term = await at.term()
        first, second = [await at.store.attempts.start(term, name, 0.0) for name in "ab"]
        assert isinstance(first, Started)
        assert isinstance(second, Started)
        assert (await at.store.schedule.left_open(term, 10, LIMIT_S)).attempts == 0, "its own are under way"
        await at.store.attempts.record(term, second, Outcome(Answer.ERROR, error="500"), 0.0)
        assert isinstance(await at.store.attempts.start(term, "b", 0.0), Started)
        after = await at.take_over()
        assert await at.store.schedule.left_open(after, 10, LIMIT_S) == LeftOpen(2, [("a", 1), ("b", 2)])
        assert await at.store.schedule.left_open(after, 1, LIMIT_S) == LeftOpen(2, [("a", 1)])
