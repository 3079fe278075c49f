"""What is declared after `store.init()` has its tables before its first statement; without init nothing is made."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

import fencehold
import fencehold.sync
from fencehold.backends.postgres.schema import PostgresSchema
from fencehold.backends.sql.callers.connections import Run
from fencehold.backends.sql.statements import Step
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.ports.events import Filter
from tests.across_packages.upgrading import old_tables
from tests.across_packages.upgrading.test_old_tables import run
from tests.fencehold.runtime.outbox.scene import Heard, running
from tests.servers.roles import Role

Verb = Callable[[fencehold.Outbox], Awaitable[Any]]


VERBS: dict[str, Verb] = {
    "add": lambda outbox: outbox.add("a", {}),
    "add_many": lambda outbox: outbox.add_many([("a", 1), ("b", 2)]),
    "claim": lambda outbox: outbox.claim(1, "me"),
    "reap": lambda outbox: outbox.reap(),
    "stats": lambda outbox: outbox.stats(),
    "find": lambda outbox: outbox.find(Filter()),
    "redrive": lambda outbox: outbox.redrive("a", "mended"),
    "retry": lambda outbox: outbox.retry([]),
    "purge": lambda outbox: outbox.purge("1d"),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_an_outbox_declared_after_init_is_there_at_its_first_use(pg_or_sqlite_url: str, verb: str) -> None:
    async with fencehold.connect(pg_or_sqlite_url) as store:
        assert "0001_outbox" not in await store.init()
        await VERBS[verb](store.outbox("other"))
        assert await store.outbox("other").init() == []


async def test_a_worker_or_a_reaper_may_be_the_first_to_use_it(pg_or_sqlite_url: str) -> None:
    heard = Heard()
    async with fencehold.connect(pg_or_sqlite_url, facts=heard) as store:
        await store.init()
        async with running(store.outbox("worked").worker(print)):
            await heard.once("worker_started", outbox="worked")
        reaper = store.outbox("reaped").reaper()
        task = asyncio.create_task(reaper.run())
        await heard.once("reaper_run", outbox="reaped")
        reaper.stop()
        await task
        assert heard.all("reaper_failed") == []


async def test_first_uses_at_once_make_the_tables_once_in_every_store(pg_or_sqlite_url: str) -> None:
    stores, heard = [], [Heard() for _ in range(3)]
    for one in heard:
        stores.append(await fencehold.connect(pg_or_sqlite_url, facts=one).open())
        await stores[-1].init()
    outboxes = [store.outbox("other") for store in stores for _ in range(3)]
    await asyncio.gather(*(outbox.add("a", {}) for outbox in outboxes for _ in range(3)))
    made = [fact["steps"] for one in heard for fact in one.all("tables_made")]
    assert sum(bool(steps) for steps in made) == 1
    assert (await outboxes[0].stats()).pending == 27
    for store in stores:
        await store.close()


async def test_items_declared_after_init_are_there_at_their_first_use(pg_or_sqlite_url: str) -> None:
    async with fencehold.connect(pg_or_sqlite_url) as store:
        assert "0001_items" not in await store.init()
        kinds = [store.items(f"kind-{number}") for number in range(4)]
        puts = (items.put("1", state="NEW", document={}) for items in kinds)
        assert [view.state for view in await asyncio.gather(*puts)] == ["NEW"] * 4
        assert await store.item_kinds() == [items.kind for items in kinds]


@pytest.mark.parametrize("verb", ["get", "find", "acquire", "next_for_state", "break_lease", "item_kinds"])
async def test_every_verb_of_items_may_be_the_first(pg_or_sqlite_url: str, verb: str) -> None:
    async with fencehold.connect(pg_or_sqlite_url) as store:
        await store.init()
        items = store.items("kind")
        if verb == "acquire":
            with pytest.raises(fencehold.NoSuchItem):
                await items.acquire("1")
        else:
            await (store.item_kinds() if verb == "item_kinds" else getattr(items, verb)(*["1"] * (verb != "find")))


async def test_without_init_nothing_is_made_and_the_hint_is_true(pg_or_sqlite_url: str) -> None:
    async with fencehold.connect(pg_or_sqlite_url) as store:
        await store.init()
    async with fencehold.connect(pg_or_sqlite_url) as store:
        outbox, items = store.outbox("other"), store.items("kind")
        for use, command in (
            (lambda: outbox.add("a", {}), "`fencehold init --outbox other`"),
            (lambda: items.get("1"), "`fencehold init --items`"),
        ):
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await use()
            assert caught.value.code == "schema_missing"
            assert f"{command} or `await store.init()`" in caught.value.hint
        await store.init()
        await outbox.add("a", {})
        assert await items.get("1") is None


async def test_tables_of_an_older_version_are_upgraded_at_their_first_use(postgres_url: str) -> None:
    old_tables.make(postgres_url)
    async with fencehold.connect(postgres_url) as store:
        assert await store.init() == ["0002_lease_id", "0003_grant_timeline"]
        assert await store.outbox().outbox_id()
        assert await store.outbox().init() == []


# In a transaction of the caller's


async def test_the_table_is_not_made_in_the_callers_transaction(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        outbox = store.outbox("other")
        with psycopg.connect(postgres_url) as conn:
            conn.execute("CREATE TABLE report (id int)")
            await outbox.add("a", {}, tx=conn)
            conn.rollback()
        assert (await outbox.stats()).pending == 0
        assert run(postgres_url, "SELECT to_regclass('report')") == [(None,)]


def started_writing(url: str) -> sqlite3.Connection:
    conn = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    conn.execute("CREATE TABLE IF NOT EXISTS report (id int)")
    conn.execute("INSERT INTO report VALUES (7)")
    return conn


async def test_whoever_holds_sqlites_write_lock_is_told_soon_how_to_do_it(sqlite_url: str) -> None:
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        outbox = store.outbox("other")
        for use in (
            lambda conn: outbox.add("a", {}, tx=conn),
            lambda conn: outbox.first_time("6f3b7c1e-6a53-4d52-a8a5-2f3d2a0a9f11", "mail", tx=conn),
        ):
            with closing(started_writing(sqlite_url)) as conn:
                began_s = time.monotonic()
                with pytest.raises(fencehold.Unavailable) as caught:
                    await use(conn)
                assert time.monotonic() - began_s < 15
                assert caught.value.code == "busy"
                assert "store.outbox('other') before `await store.init()`" in caught.value.hint
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as conn:
            await outbox.add("a", {}, tx=conn)
        assert (await outbox.stats()).pending == 1


async def test_a_first_use_that_waits_for_the_callers_own_lock_lets_the_caller_go_on(sqlite_url: str) -> None:
    """The first waits for the lock that the second, which waits for the first, holds: the second gives way."""
    async with fencehold.connect(sqlite_url) as store:
        await store.init()
        outbox = store.outbox("other")
        with closing(started_writing(sqlite_url)) as conn:
            first = asyncio.create_task(outbox.add("a", {}))
            await asyncio.sleep(0)
            with pytest.raises(fencehold.Unavailable) as caught:
                await outbox.add("b", {}, tx=conn)
            assert caught.value.code == "busy"
        await first
        assert (await outbox.stats()).pending == 1


def test_without_an_event_loop_it_is_the_same(sqlite_url: str) -> None:
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        outbox, early = store.outbox("other"), store.outbox("early")
        with closing(started_writing(sqlite_url)) as conn:
            with pytest.raises(fencehold.Unavailable) as caught:
                outbox.add("a", {}, tx=conn)
            assert caught.value.code == "busy"
        adding = [threading.Thread(target=early.add, args=("a", {})) for _ in range(4)]
        for thread in adding:
            thread.start()
        for thread in adding:
            thread.join()
        assert early.stats().pending == 4
        assert store.items("kind").put("1", state="NEW", document={}).state == "NEW"
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as conn:
            outbox.add("a", {}, tx=conn)


# Rights


async def test_a_role_that_may_not_create_hears_who_must_make_the_outbox(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    role.may_use_all_tables()
    role.owner_says("REVOKE CREATE ON SCHEMA public FROM public")
    try:
        async with fencehold.connect(role.url) as store:
            assert await store.init() == []
            for use, option in (
                (store.outbox("other").add("a", {}), "--outbox other"),
                (store.items("kind").get("1"), "--items"),
            ):
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    await use
                assert caught.value.code == "no_permission"
                assert f"owns the schema must run `fencehold init {option}`" in caught.value.hint
    finally:
        role.drop()


async def test_tables_that_another_process_makes_between_two_questions_are_nobody_elses(
    pg_or_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for what is missing sees the tables a moment later, with their record or without a fault."""
    is_made = False

    async def make() -> None:
        nonlocal is_made
        is_made = True
        async with fencehold.connect(pg_or_sqlite_url) as other:
            await other.outbox("other").init()

    ask_file, ask_server = SqliteSchema._answer, PostgresSchema._answer

    def in_file(self: SqliteSchema, connection: Any, asked: Run | Step) -> list[tuple[Any, ...]]:
        found = ask_file(self, connection, asked)
        if found and asked == Run("parts_missing") and not is_made:
            asyncio.run(make())  # on the session's own thread, which has no loop
        return found

    async def on_server(self: PostgresSchema, connection: Any, asked: Run | Step) -> list[tuple[Any, ...]]:
        found = await ask_server(self, connection, asked)
        if found and asked == Run("parts_missing") and not is_made:
            await asyncio.to_thread(lambda: asyncio.run(make()))
        return found

    async with fencehold.connect(pg_or_sqlite_url) as store:
        await store.init()
        monkeypatch.setattr(SqliteSchema, "_answer", in_file)
        monkeypatch.setattr(PostgresSchema, "_answer", on_server)
        await store.outbox("other").add("a", {})
        assert (is_made, (await store.outbox("other").stats()).pending) == (True, 1)
