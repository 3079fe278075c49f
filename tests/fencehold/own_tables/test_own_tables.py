"""A service's own tables: rows by name, times in UTC, errors sorted, writes fenced, on every database."""

import asyncio
import contextlib
import datetime as dt
import sqlite3
from urllib.parse import quote

import psycopg
import pytest

import fencehold
from fencehold import ConfigurationError, LeaseLost, Unavailable, Uncertain
from fencehold.own_tables import Statement, Steps, own_tables
from tests.fencehold.own_tables.notebook import LIMIT_S, PACKAGE, ids_of, led, notebook, opened, read, write, written

SECRET = "s3cr3t"
NOON = dt.datetime(2026, 3, 4, 12, 0, 0, 123_000, tzinfo=dt.UTC)
AT_NOON_ELSEWHERE = NOON.astimezone(dt.timezone(dt.timedelta(hours=5)))


async def test_tables_are_made_once_and_what_is_missing_is_named(url):
    tables = opened(url)
    if tables.dialect != "sqlite":  # whose file does not exist yet
        assert await tables.missing(LIMIT_S) == ["notes"]
    assert await tables.init() == ["0001_notes"]
    assert await tables.init() == []
    assert await tables.missing(LIMIT_S) == []
    assert await tables.rights_missing(LIMIT_S) == []
    await tables.close()


async def test_tables_of_an_older_version_are_missing_too(transaction_url):
    async with notebook(transaction_url) as tables:
        forget = "DELETE FROM fencehold_schema WHERE component = 'notes'"
        if tables.dialect == "sqlite":
            with sqlite3.connect(transaction_url.removeprefix("sqlite:///")) as file:
                file.execute(forget)
        else:
            with psycopg.connect(transaction_url) as connection:
                connection.execute(forget.encode())
        assert await tables.missing(LIMIT_S) == ["notes (an old one)"]


async def test_rows_are_by_name_and_every_time_is_in_utc(url):
    async with notebook(url) as tables:
        (row,) = await tables.run(write("a", 3, AT_NOON_ELSEWHERE), LIMIT_S)
        assert (row["note_id"], row["written_at"], row["written_at"].tzinfo) == ("a", NOON, dt.UTC)
        (row,) = await read(tables, "a")
        assert {name: row[name] for name in ("note_id", "weight", "written_at")} == {
            "note_id": "a", "weight": 3, "written_at": NOON,
        }  # fmt: skip
        assert row["now"].tzinfo is dt.UTC


async def test_on_postgres_times_are_in_utc_in_whatever_zone_the_session_is(postgres_url):
    zoned = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options={quote('-c TimeZone=Asia/Tokyo')}"
    async with notebook(zoned) as tables:
        reader = tables.reader()
        await tables.run(write("a", 1, NOON), LIMIT_S)
        for rows in (await read(tables, "a"), await reader.run(Statement("read", {"ids": ["a"]}), LIMIT_S)):
            assert [(row["written_at"], row["written_at"].tzinfo) for row in rows] == [(NOON, dt.UTC)]


async def test_a_time_that_is_not_there_is_none(url):
    async with notebook(url) as tables:
        await tables.run(write("a"), LIMIT_S)
        assert [row["weight"] for row in await read(tables, "a")] == [1]
        if tables.dialect != "sqlserver":  # which takes no NULL: its own statements say NULLIF
            assert [row["written_at"] for row in await read(tables, "a")] == [None]


async def test_a_list_is_one_parameter_whatever_is_in_its_texts(url):
    odd = ["%", '"', "\\", "%22", "a,b", "\N{SNOWMAN}"]
    async with notebook(url) as tables:
        for note_id in odd:
            await tables.run(write(note_id), LIMIT_S)
        assert sorted(await ids_of(tables, *odd)) == sorted(odd)
        assert await ids_of(tables, "%5C") == []


async def test_a_value_that_is_refused_is_unavailable_and_the_next_statement_works(url):
    async with notebook(url) as tables:
        with pytest.raises(Unavailable) as caught:
            await tables.run(write("a", -1), LIMIT_S)
        assert caught.value.code == "store_error"
        assert len(await tables.run(write("a", 1), LIMIT_S)) == 1


async def test_statements_that_run_together_answer_each_for_itself(url):
    async with notebook(url) as tables:
        found = await tables.run_all([write("a"), write("b", 5), Statement("lightest")], LIMIT_S)
        assert [[row.get("note_id", row.get("weight")) for row in rows] for rows in found] == [["a"], ["b"], [1]]


async def test_on_sqlite_statements_that_run_together_are_one_transaction(sqlite_url):
    async with notebook(sqlite_url) as tables:
        with pytest.raises(Unavailable):
            await tables.run_all([write("a"), write("b", -1)], LIMIT_S)
        assert await ids_of(tables, "a", "b") == []


async def test_steps_under_a_fence_return_their_result_and_are_committed(transaction_url):
    async with led(transaction_url) as term, notebook(transaction_url) as tables:
        assert await tables.fenced(term, written(write("a"), write("b"))) == 2
        assert await ids_of(tables, "a", "b") == ["a", "b"]


async def test_nothing_is_written_under_a_term_that_is_over(transaction_url):
    async with led(transaction_url) as term, notebook(transaction_url) as tables:
        term.lost("a test says so")
        with pytest.raises(LeaseLost):
            await tables.fenced(term, written(write("a")))
        assert await ids_of(tables, "a") == []


async def test_nothing_is_written_when_another_has_taken_the_lease(transaction_url):
    async with notebook(transaction_url) as tables, led(transaction_url) as term:
        expire = "UPDATE fencehold_leases SET expires_at = :past"
        if tables.dialect == "sqlite":
            with sqlite3.connect(transaction_url.removeprefix("sqlite:///")) as file:
                file.execute(expire, {"past": "2020-01-01T00:00:00.000Z"})
        else:
            with psycopg.connect(transaction_url) as connection:
                connection.execute(expire.replace(":past", "'2020-01-01Z'").encode())
        with pytest.raises(LeaseLost):
            await tables.fenced(term, written(write("a"), write("b")))
        assert await ids_of(tables, "a", "b") == []


async def test_a_bad_value_under_a_fence_is_the_drivers_error_undoes_all_and_ends_no_term(transaction_url):
    async with led(transaction_url) as term, notebook(transaction_url) as tables:
        with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
            await tables.fenced(term, written(write("a"), write("b", -1)))
        assert await ids_of(tables, "a", "b") == []
        assert term.is_valid
        assert await tables.fenced(term, written(write("a"))) == 1


async def test_under_a_fence_a_limit_is_told_as_the_one_that_the_fence_sets(postgres_url):
    def too_slow() -> Steps[None]:
        yield write("a")
        raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")

    async with led(postgres_url) as term, notebook(postgres_url) as tables:
        with pytest.raises(Unavailable) as caught:
            await tables.fenced(term, too_slow())
        assert (caught.value.code, "fencehold's own, 30 s" in caught.value.hint) == ("canceled", True)
        assert await ids_of(tables, "a") == []


async def test_what_must_not_run_twice_is_uncertain_on_a_connection_that_died_and_all_else_is_repeated(postgres_url):
    def end_all() -> None:
        others = "pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"SELECT {others} AND pid <> pg_backend_pid()".encode())

    async with notebook(postgres_url) as tables:
        once = Statement("write", {"id": "a", "weight": 1, "written_at": None}, may_repeat=False)
        assert await read(tables, "a") == []
        await asyncio.to_thread(end_all)
        with pytest.raises(Uncertain):
            await tables.run(once, LIMIT_S)
        assert len(await tables.run(once, LIMIT_S)) == 1
        await asyncio.to_thread(end_all)
        assert await ids_of(tables, "a") == ["a"]


async def test_a_reader_hears_of_what_was_written(postgres_url):
    async with notebook(postgres_url) as tables:
        heard = asyncio.Event()
        reader = tables.reader()
        reader.on_hint(heard.set)
        assert await reader.listen(LIMIT_S)
        await tables.run(write("a"), LIMIT_S)
        await asyncio.wait_for(heard.wait(), LIMIT_S)
        (first, second) = await reader.run_all([Statement("read", {"ids": ["a"]}), Statement("lightest")], LIMIT_S)
        assert (first[0]["note_id"], second) == ("a", [{"weight": 1}])


async def test_where_nothing_can_be_heard_a_reader_says_so(sqlite_url):
    async with notebook(sqlite_url) as tables:
        assert await tables.reader().listen(LIMIT_S) is False


@pytest.mark.parametrize("scheme", ["postgresql", "mssql"])
async def test_a_server_that_is_not_there_is_unavailable_and_the_password_is_not_told(scheme):
    tables = opened(f"{scheme}://u:{SECRET}@127.0.0.1:1/d")
    for ask in (tables.open(), tables.run(Statement("lightest"), LIMIT_S), tables.missing(LIMIT_S)):
        with pytest.raises(Unavailable) as caught:
            await ask
        assert SECRET not in str(caught.value)
    await tables.close()


@pytest.mark.parametrize(
    "bad",
    [f"postgresql://u:{SECRET}/x@h:5432/d", f"cosmos://:{SECRET}@h/d", "memory://x", f"no {SECRET}", "sqlite:///"],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(bad):
    with pytest.raises(ConfigurationError) as caught:
        opened(bad)
    assert SECRET not in str(caught.value)


def test_what_a_store_on_this_database_could_not_wait_for_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        opened("sqlite:///a.db", durable="replicated")
    assert caught.value.code == "durable_unsupported"
    with pytest.raises(ConfigurationError):
        own_tables("sqlite:///a.db", PACKAGE, "no table")


async def test_after_close_nothing_is_sent(postgres_url):
    async with notebook(postgres_url) as tables:
        pass
    with pytest.raises(Unavailable) as caught:
        await tables.run(Statement("lightest"), LIMIT_S)
    assert caught.value.code == "store_closed"


async def test_the_tables_and_the_store_live_side_by_side(url):
    async with fencehold.connect(url) as store:
        await store.init()
        async with notebook(url) as tables:
            await tables.run(write("a"), LIMIT_S)
            assert await store.missing() == []
            assert "CREATE TABLE" in tables.script()


async def test_words_of_a_statement_that_are_also_a_tables_name_stay_as_they_are(transaction_url):
    async with notebook(transaction_url) as tables:
        (row,) = await tables.run(Statement("odd", {"notes": "x"}), LIMIT_S)
        assert (row["words"], row["given"]) == ("my notes are done", "x")


async def test_a_time_of_sqlites_own_is_in_utc_too(sqlite_url):
    async with notebook(sqlite_url) as tables:
        (row,) = await tables.run(Statement("odd", {"notes": "x"}), LIMIT_S)
        assert row["made_at"].tzinfo is dt.UTC


async def test_a_number_in_a_column_of_times_is_no_error_once_the_statement_is_committed(postgres_url):
    zoned = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options={quote('-c TimeZone=Asia/Tokyo')}"
    async with notebook(zoned) as tables:
        (row,) = await tables.run(Statement("odd", {"notes": "x"}), LIMIT_S)
        assert row["made_at"] == 17


async def test_steps_that_have_begun_are_refused_before_anything_is_sent(transaction_url):
    async with notebook(transaction_url) as tables, led(transaction_url) as term:
        await tables.run(write("a"), LIMIT_S)

        def twice() -> Steps[None]:
            yield write("b")
            yield Statement("no_such_statement")

        steps = twice()
        with pytest.raises(KeyError):
            await tables.fenced(term, steps)
        with pytest.raises(ConfigurationError) as caught:
            await tables.fenced(term, steps)
        assert caught.value.code == "steps_used"
        assert await ids_of(tables, "a", "b") == ["a"]


async def test_a_write_that_waited_behind_others_beyond_its_limit_is_never_made(sqlite_url):
    path = sqlite_url.removeprefix("sqlite:///")
    async with notebook(sqlite_url) as tables:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            long, late = asyncio.create_task(tables.run(write("long"), 4.0)), tables.run(write("late"), 0.05)
            await asyncio.sleep(0)  # the first call is on the thread, the second one behind it
            with pytest.raises(Unavailable) as caught:
                await late
            other.execute("ROLLBACK")
        await long
        assert caught.value.code == "busy"
        assert "not begun" in caught.value.message
        assert await ids_of(tables, "long", "late") == ["long"]
