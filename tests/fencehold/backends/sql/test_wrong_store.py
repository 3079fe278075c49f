"""A connection of another database than the store's: refused by a code of its own, and the healthy leader goes on."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
import fencehold.sync
from tests.servers.postgres import AnyPostgres, fresh_database

NAME, HOLDER = "job", "ada"
COUNT = "UPDATE tally SET n = n + 1"


@pytest.fixture(params=["postgres", "sqlite"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Of two databases of the same kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ours.db", f"sqlite:///{tmp_path}/theirs.db"
        return
    server: AnyPostgres = request.getfixturevalue("postgres_server")
    with fresh_database(server) as ours, fresh_database(server) as theirs:
        yield ours, theirs


def connected(url: str) -> Any:
    """A connection of the driver's own, in a transaction from its first write on."""
    return sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else psycopg.connect(url)


def run(url: str, statement: str) -> list[Any]:
    with closing(connected(url)) as connection:
        cursor = connection.execute(statement)
        found = cursor.fetchall() if cursor.description else []
        connection.commit()
        return list(found)


@asynccontextmanager
async def leading(ours: str, theirs: str) -> AsyncIterator[tuple[fencehold.Store, fencehold.Leader, fencehold.Term]]:
    """A leader on the one; on the other a lease with an equal name, holder and epoch is held."""
    for url in (ours, theirs):
        async with fencehold.connect(url) as store:
            store.outbox()
            await store.init()
            if url == theirs:
                assert await store.leases.acquire(NAME, HOLDER, lease=600)
        run(url, "CREATE TABLE tally (n integer)")
        run(url, "INSERT INTO tally VALUES (0)")
    async with fencehold.connect(ours) as store, store.leader(NAME, lease=30, holder_id=HOLDER) as leader:
        assert await leader.wait_for_leadership(20)
        assert leader.term is not None
        assert leader.term.epoch == 1
        yield store, leader, leader.term


async def test_a_fence_on_another_database_is_refused_and_the_term_goes_on(urls: tuple[str, str]) -> None:
    ours, theirs = urls
    async with leading(ours, theirs) as (_, leader, term):
        with closing(connected(theirs)) as connection:
            connection.execute(COUNT)
            with pytest.raises(fencehold.ConfigurationError) as caught:
                term.fence(connection)
            connection.commit()
        assert caught.value.code == "wrong_store"
        assert run(theirs, "SELECT n FROM tally") == [(0,)], "the transaction could not commit"
        with closing(connected(ours)) as connection:
            term.fence(connection)
            connection.execute(COUNT)
            connection.commit()
        assert run(ours, "SELECT n FROM tally") == [(1,)]
        assert leader.term is term


async def test_an_awaited_fence_on_another_database_is_refused_and_the_term_goes_on(
    postgres_server: AnyPostgres,
) -> None:
    with fresh_database(postgres_server) as ours, fresh_database(postgres_server) as theirs:
        async with (
            leading(ours, theirs) as (_, leader, term),
            await psycopg.AsyncConnection.connect(theirs) as connection,
        ):
            await connection.execute(COUNT)
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await term.fence(connection)
            assert caught.value.code == "wrong_store"
            assert leader.term is term


async def test_what_is_done_later_on_a_refused_connection_is_not_undone_by_the_end_of_the_term(
    urls: tuple[str, str],
) -> None:
    ours, theirs = urls
    async with leading(ours, theirs) as (_, leader, term):
        with closing(connected(theirs)) as connection:
            async with term:
                with pytest.raises(fencehold.ConfigurationError):
                    term.fence(connection)
                connection.rollback()
                connection.execute(COUNT)  # not under this lease, and none of its business
                ended = asyncio.ensure_future(leader.step_down())
                await asyncio.Event().wait()
            await ended
            connection.commit()
        assert run(theirs, "SELECT n FROM tally") == [(1,)]


async def test_a_guard_that_matched_nothing_on_another_database_does_not_end_the_term(urls: tuple[str, str]) -> None:
    ours, theirs = urls
    async with leading(ours, theirs) as (_, leader, term):
        guard = term.guard()
        for url, code in ((theirs, "guard_matched_nothing"), (ours, None)):
            with closing(connected(url)) as connection:
                cursor = connection.execute(f"{COUNT} WHERE {guard.sql}", dict(guard.params))
                if code is None:
                    guard.check(cursor)
                    connection.commit()
                    continue
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    guard.check(cursor)
                assert caught.value.code == code
        assert [run(url, "SELECT n FROM tally") for url in urls] == [[(1,)], [(0,)]]
        assert leader.term is term


async def test_a_guard_that_matched_nothing_because_the_lease_is_gone_ends_the_term(urls: tuple[str, str]) -> None:
    ours, theirs = urls
    async with leading(ours, theirs) as (store, _, term):
        guard = term.guard()
        lease = await store.leases.read(NAME)
        assert lease is not None
        assert await store.leases.release(lease)
        with closing(connected(ours)) as connection:
            cursor = connection.execute(f"{COUNT} WHERE {guard.sql}", dict(guard.params))
            with pytest.raises(fencehold.LeaseLost):
                guard.check(cursor)
        assert not term.is_valid


async def test_a_guard_whose_own_condition_matched_nothing_is_told_so_while_its_transaction_is_open(
    urls: tuple[str, str],
) -> None:
    """On SQLite that transaction has the write lock, and a renewal would have to wait for it."""
    ours, theirs = urls
    async with leading(ours, theirs) as (_, leader, term):
        guard = term.guard()
        with closing(connected(ours)) as connection:
            cursor = connection.execute(f"{COUNT} WHERE n > 1000 AND {guard.sql}", dict(guard.params))
            with pytest.raises(fencehold.ConfigurationError) as caught:
                guard.check(cursor)
            connection.commit()
        assert caught.value.code == "guard_matched_nothing"
        assert leader.term is term


async def test_an_event_is_not_added_in_another_database(urls: tuple[str, str]) -> None:
    ours, theirs = urls
    async with leading(ours, theirs) as (store, _, _):
        outbox = store.outbox()
        for url in (theirs, ours):
            with closing(connected(url)) as connection:
                connection.execute(COUNT)
                if url == ours:
                    await outbox.add("order.paid", {}, tx=connection)
                else:
                    for attempt in (
                        outbox.add("order.paid", {}, tx=connection),
                        outbox.first_time("6f3b7c1e-6a53-4d52-a8a5-2f3d2a0a9f11", "mail", tx=connection),
                    ):
                        with pytest.raises(fencehold.ConfigurationError) as caught:
                            await attempt
                        assert caught.value.code == "wrong_store"
                connection.commit()
        assert [len(run(url, "SELECT id FROM outbox")) for url in urls] == [1, 0]


async def test_without_an_event_loop_it_is_the_same(urls: tuple[str, str]) -> None:
    ours, theirs = urls
    async with leading(ours, theirs):
        pass
    await asyncio.to_thread(without_an_event_loop, ours, theirs)


def without_an_event_loop(ours: str, theirs: str) -> None:
    with fencehold.sync.connect(ours) as store, store.leader(NAME, lease=30, holder_id=HOLDER) as leader:
        assert leader.wait_for_leadership(20)
        term, outbox = leader.term, store.outbox()
        assert term is not None
        with closing(connected(theirs)) as connection:
            for attempt in (
                lambda: outbox.add("order.paid", {}, tx=connection),
                lambda: outbox.first_time("6f3b7c1e-6a53-4d52-a8a5-2f3d2a0a9f11", "mail", tx=connection),
                lambda: term.fence(connection),
            ):
                connection.execute(COUNT)
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    attempt()
                assert caught.value.code == "wrong_store"
            connection.rollback()
            guard = term.guard()
            cursor = connection.execute(f"{COUNT} WHERE {guard.sql}", dict(guard.params))
            with pytest.raises(fencehold.ConfigurationError) as caught:
                guard.check(cursor)
            assert caught.value.code == "guard_matched_nothing"
        assert term.is_valid


def made_anew(url: str) -> None:
    """The outbox dropped, and made again by somebody else's `init`."""
    for table in ("outbox", "outbox_reaper", "outbox_consumed", "outbox_identity"):
        run(url, f"DROP TABLE {table}")

    async def init() -> None:
        async with fencehold.connect(url) as other:
            await other.outbox().init()

    asyncio.run(init())


async def test_a_producer_goes_on_when_its_outbox_was_dropped_and_made_anew(postgres_server: AnyPostgres) -> None:
    with fresh_database(postgres_server) as ours, fresh_database(postgres_server) as theirs:
        async with leading(ours, theirs) as (store, _, _):
            outbox = store.outbox()
            before = await outbox.outbox_id()
            await asyncio.to_thread(made_anew, ours)
            with closing(connected(theirs)) as connection:
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    await outbox.add("order.paid", {}, tx=connection)
                assert caught.value.code == "wrong_store"
                connection.commit()
            with closing(connected(ours)) as connection:
                tracking_id = await outbox.add("order.paid", {}, tx=connection)
                assert await outbox.first_time(tracking_id, "mail", tx=connection)
                connection.commit()
            assert await outbox.outbox_id() != before
            assert [len(run(url, "SELECT id FROM outbox")) for url in (ours, theirs)] == [1, 0]


def test_a_producer_without_an_event_loop_goes_on_too(postgres_server: AnyPostgres) -> None:
    with fresh_database(postgres_server) as ours, fencehold.sync.connect(ours) as store:
        store.init()
        outbox = store.outbox()
        with closing(connected(ours)) as connection:
            outbox.add("order.paid", {}, tx=connection)
            connection.rollback()
        made_anew(ours)
        with closing(connected(ours)) as connection:
            ids = outbox.add_many(iter([("order.paid", {}), ("order.sent", {})]), tx=connection)
            connection.commit()
        assert sorted(str(one) for (one,) in run(ours, "SELECT tracking_id FROM outbox")) == sorted(ids)
        made_anew(ours)
        with closing(connected(ours)) as connection:
            assert outbox.first_time(ids[0], "mail", tx=connection)


async def test_a_store_that_is_away_does_not_hide_that_the_connection_leads_elsewhere(
    postgres_server: AnyPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_database(postgres_server) as ours, fresh_database(postgres_server) as theirs:
        async with leading(ours, theirs) as (store, _, _):
            outbox = store.outbox()
            await outbox.outbox_id()

            async def away(*_: Any) -> str:
                raise fencehold.Unavailable("gone")

            monkeypatch.setattr("fencehold.backends.postgres.callers.PostgresCallersOutbox.identity", away)
            with closing(connected(theirs)) as connection:
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    await outbox.add("order.paid", {}, tx=connection)
                assert caught.value.code == "wrong_store"


async def test_a_lock_with_an_epoch_refuses_another_database_too(postgres_server: AnyPostgres) -> None:
    from pgleaderlock import LeaderLock

    with fresh_database(postgres_server) as ours, fresh_database(postgres_server) as theirs:
        async with fencehold.connect(theirs) as store:
            await store.init()
        lock = LeaderLock.for_name(ours, NAME, fencing_name=NAME)
        async with lock:
            assert await lock.wait_for_leadership(20)
            assert lock.term is not None
            with psycopg.connect(ours) as connection:
                lock.term.fence(connection)
            with psycopg.connect(theirs) as connection, pytest.raises(fencehold.ConfigurationError) as caught:
                lock.term.fence(connection)
            assert caught.value.code == "wrong_store"
