"""Databases that are not in UTF8: SQL_ASCII, which initdb makes without a locale, and LATIN1."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row

import fencehold
from pgleaderlock import LeaderLock
from pgleaderlock.errors import HopelessError
from tests.fencehold.cli.cli_process import fencehold_run, parsed
from tests.fencehold.runtime.outbox.scene import Heard
from tests.servers.postgres import AnyPostgres, fresh_database

ENCODINGS = ["SQL_ASCII", "LATIN1"]
NAME = "größe"  # in LATIN1 too
GIVEN: list[dict[str, Any]] = [{}, {"client_encoding": "UTF8"}, {"row_factory": dict_row}]


@pytest.fixture(params=ENCODINGS)
def odd_url(postgres_server: AnyPostgres, request: pytest.FixtureRequest) -> Iterator[str]:
    with fresh_database(postgres_server, request.param) as url:
        yield url


async def test_a_leader_renews_its_own_lease_and_others_wait(odd_url: str) -> None:
    heard = Heard()
    async with fencehold.connect(odd_url, facts=heard) as store, fencehold.connect(odd_url) as other:
        assert await store.init()
        assert await other.init() == []  # a second init finds everything
        async with store.leader(NAME, lease="0.6s", holder_id=NAME) as leader, other.leader(NAME) as rival:
            assert await leader.wait_for_leadership(20)
            await heard.once("leader_renewed", times=3, lease_epoch=1)
            assert not rival.is_leader
            [lease] = await other.leases.list()
            assert (lease.name, lease.holder_id, lease.epoch) == (NAME, NAME, 1)


async def test_events_and_items_keep_their_text(odd_url: str) -> None:
    async with fencehold.connect(odd_url) as store:
        outbox, items = store.outbox(), store.items(NAME)
        await store.init()
        await outbox.add(NAME, {"text": NAME}, aggregate_id=NAME)
        [claim] = await outbox.claim(10, "worker")
        assert (claim.event_type, claim.payload, claim.aggregate_id) == (NAME, {"text": NAME}, NAME)
        assert [done.tracking_id for done in await outbox.complete([claim])] == [claim.tracking_id]
        await items.put(NAME, state=NAME, document={"text": NAME})
        [item] = await items.next_for_state(NAME)
        assert (item.id, item.state, item.document) == (NAME, NAME, {"text": NAME})


async def test_an_advisory_lock_with_a_fencing_epoch_is_held(odd_url: str) -> None:
    async with fencehold.connect(odd_url) as store:
        await store.init()
    lock = LeaderLock(odd_url, 1, 2, fencing_name="x")
    async with lock:
        assert await lock.wait_for_leadership(20)
        assert lock.term is not None


async def renewed(url: str, times: int) -> None:
    """Until the only lease was renewed so often."""
    seen: set[Any] = set()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as pg, asyncio.timeout(30):
        while len(seen) <= times:
            seen.add(await (await pg.execute("SELECT renewed_at FROM fencehold_leases")).fetchone())
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("given", GIVEN, ids=["as the database", "UTF8", "rows as dicts"])
async def test_an_advisory_lock_with_a_fencing_epoch_is_held_on_a_connection_of_the_callers(
    odd_url: str, given: dict[str, Any]
) -> None:
    lock = LeaderLock(
        odd_url, 1, 2, fencing_name=NAME, health_interval_s=0.2,
        connect_fn=lambda: psycopg.AsyncConnection.connect(odd_url, **given),
    )  # fmt: skip
    told: list[object] = []
    lock.on_lost(lambda: told.append("lost"))
    lock.on_error(told.append)
    async with lock:
        assert await lock.wait_for_leadership(20)
        await renewed(odd_url, times=3)
        assert lock.term is not None
        assert lock.term.epoch == 1
        async with lock.term.transaction() as tx:
            await tx.execute("CREATE TABLE written ()")
    assert told == []


async def test_a_lock_is_refused_on_a_connection_whose_text_the_database_would_not_convert(
    postgres_server: AnyPostgres,
) -> None:
    with fresh_database(postgres_server, "SQL_ASCII") as url:
        lock = LeaderLock(
            url, 1, 2, fencing_name=NAME,
            connect_fn=lambda: psycopg.AsyncConnection.connect(url, client_encoding="LATIN1"),
        )  # fmt: skip
        errors: list[Exception] = []
        lock.on_error(errors.append)
        await lock.start()
        assert await lock.wait_for_leadership(20) is False
        assert [type(error) for error in errors] == [HopelessError]
        assert "client_encoding=utf8" in str(errors[0])


#: What the database stores and what the connection says it sends, where nobody converts the one into the other.
NOT_CONVERTED = [("SQL_ASCII", "LATIN1"), ("LATIN1", "SQL_ASCII")]


@pytest.mark.parametrize("client", ["UTF8", None, "LATIN1", "SQL_ASCII"])
async def test_the_callers_own_connection_works_or_is_refused_by_code(odd_url: str, client: str | None) -> None:
    """Without an encoding of its own it has the database's: psycopg then gives bytes for text in SQL_ASCII."""
    given: dict[str, Any] = {"client_encoding": client} if client else {}
    async with fencehold.connect(odd_url) as store:
        outbox = store.outbox()
        await store.init()
        async with store.leader(NAME) as leader:
            assert await leader.wait_for_leadership(20)
            term = leader.term
            assert term is not None
            with psycopg.connect(odd_url, **given) as conn:
                if (conn.info.parameter_status("server_encoding"), client) in NOT_CONVERTED:
                    await refused(term, outbox, conn)
                    return
                term.fence(conn)
                event = await outbox.add(NAME, {"text": NAME}, tx=conn)
                assert isinstance(event, str)
                assert await outbox.first_time(event, "reader", tx=conn)
            async with await psycopg.AsyncConnection.connect(odd_url, **given) as pg:
                await term.fence(pg)
                await outbox.add(NAME, {"text": NAME}, tx=pg)
        claims = await outbox.claim(10, "worker")
        assert [claim.payload for claim in claims] == [{"text": NAME}] * 2


async def refused(term: fencehold.Term, outbox: fencehold.Outbox, conn: Any) -> None:
    """Bytes that nobody converts would be another name, or another payload, than our own connections read."""
    with pytest.raises(fencehold.ConfigurationError) as fenced:
        term.fence(conn)
    with pytest.raises(fencehold.ConfigurationError) as added:
        await outbox.add(NAME, {"text": NAME}, tx=conn)
    assert (fenced.value.code, added.value.code) == ("bad_encoding", "bad_encoding")
    assert term.is_valid
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        conn.execute("SELECT 1")  # what was to be fenced cannot be committed


@pytest.mark.parametrize(
    ("stored", "client", "name"), [*[(*pair, NAME) for pair in NOT_CONVERTED], ("UTF8", "LATIN1", "名")]
)
async def test_a_guarded_statement_writes_whatever_the_encoding_of_its_connection(
    postgres_server: AnyPostgres, stored: str, client: str, name: str
) -> None:
    """Also where the connection's encoding lacks a character of the lease's name."""
    with fresh_database(postgres_server, stored) as url:
        async with fencehold.connect(url) as store:
            await store.init()
            async with store.leader(name, holder_id=name) as leader:
                assert await leader.wait_for_leadership(20)
                assert leader.term is not None
                guard = leader.term.guard()
                with psycopg.connect(url, client_encoding=client) as conn:
                    conn.execute("CREATE TABLE t AS SELECT 1 AS a")
                    guard.check(conn.execute(f"UPDATE t SET a = 2 WHERE {guard.sql}".encode(), dict(guard.params)))
                with psycopg.connect(url) as conn:
                    assert conn.execute("SELECT a FROM t").fetchall() == [(2,)]


async def test_a_name_in_ascii_is_refused_like_any_other(postgres_server: AnyPostgres) -> None:
    """The next holder may have another name: what works today is to work then."""
    with fresh_database(postgres_server, "LATIN1") as url:
        async with fencehold.connect(url) as store:
            await store.init()
            async with store.leader("x", holder_id="me") as leader:
                assert await leader.wait_for_leadership(20)
                assert leader.term is not None
                async with await psycopg.AsyncConnection.connect(url, client_encoding="SQL_ASCII") as pg:
                    with pytest.raises(fencehold.ConfigurationError) as caught:
                        await leader.term.fence(pg)
                assert (caught.value.code, leader.is_leader) == ("bad_encoding", True)


async def test_of_a_term_that_is_over_the_connection_learns_that_first(postgres_server: AnyPostgres) -> None:
    with fresh_database(postgres_server, "SQL_ASCII") as url:
        async with fencehold.connect(url) as store:
            await store.init()
            async with store.leader(NAME) as leader:
                assert await leader.wait_for_leadership(20)
                term = leader.term
                assert term is not None
                await leader.step_down()
                with psycopg.connect(url, client_encoding="LATIN1") as conn:
                    with pytest.raises(fencehold.LeaseLost):
                        term.fence(conn)
                    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                        conn.execute("SELECT 1")


async def test_a_sqlalchemy_connection_works_in_utf8(odd_url: str) -> None:
    address = odd_url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(address, client_encoding="utf8")
    async with fencehold.connect(odd_url) as store:
        outbox = store.outbox()
        await store.init()
        with engine.begin() as conn:
            await outbox.add(NAME, {"text": NAME}, tx=conn)
        [claim] = await outbox.claim(10, "worker")
        assert claim.payload == {"text": NAME}
    engine.dispose()


async def test_text_that_the_database_cannot_store_is_refused_by_code(postgres_server: AnyPostgres) -> None:
    with fresh_database(postgres_server, "LATIN1") as url:
        async with fencehold.connect(url) as store:
            await store.init()
            with pytest.raises(fencehold.ConfigurationError) as caught:
                await store.leases.acquire("имя", "me")
            assert caught.value.code == "not_in_encoding"
            outbox = store.outbox()
            with psycopg.connect(url, client_encoding="LATIN1") as conn:
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    await outbox.add("order", {"text": "имя"}, tx=conn)
                assert caught.value.code == "not_in_encoding"


def test_the_commands_read_what_was_written(odd_url: str) -> None:
    assert parsed(odd_url, "init")["applied"]
    assert parsed(odd_url, "init")["up_to_date"]
    assert fencehold_run(odd_url, "run", NAME, "--no-wait", "--", "true")[0] == 0
    assert [lease["name"] for lease in parsed(odd_url, "ls")["leases"]] == [NAME]
