"""What is particular to PostgreSQL: wake-ups, poolers, replicas, dead peers, locked rows, and who may log in."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.exc
import sqlalchemy.orm

import fencehold
from fencehold.testing.proxy import FaultProxy
from tests.fencehold.runtime.outbox.scene import Heard
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

SECRET = "hunter2-pass"


@asynccontextmanager
async def ready(url: str) -> AsyncIterator[fencehold.Store]:
    async with fencehold.connect(url) as store:
        await store.init()
        yield store


def through(url: str, port: int) -> str:
    info = psycopg.conninfo.conninfo_to_dict(url)
    return f"postgresql://{info['user']}@127.0.0.1:{port}/{info['dbname']}"


def port_of(url: str) -> int:
    return int(str(psycopg.conninfo.conninfo_to_dict(url)["port"]))


async def test_a_release_wakes_a_follower_that_would_not_poll_for_an_hour(postgres_url: str) -> None:
    async with (
        ready(postgres_url) as ours,
        fencehold.connect(postgres_url) as theirs,
        ours.leader("x", lease="1h") as first,
    ):
        assert await first.wait_for_leadership(10)
        async with theirs.leader("x", lease="1h") as second:
            assert not await second.wait_for_leadership(0.01)
            await first.step_down()
            assert await second.wait_for_leadership(10)
            assert second.term is not None
            assert second.term.epoch == 2


async def test_a_leader_asked_to_step_down_does_so_at_once_and_is_told(postgres_url: str) -> None:
    async with (
        ready(postgres_url) as store,
        fencehold.connect(postgres_url) as operator,
        store.leader("x", lease="1h") as leader,
    ):
        released = asyncio.Event()
        leader.on_released(released.set)
        assert await leader.wait_for_leadership(10)
        assert await operator.leases.ask_step_down("x", 1) is not None
        await asyncio.wait_for(released.wait(), 10)


async def test_observers_hear_of_every_change_of_leader(postgres_url: str) -> None:
    async with ready(postgres_url) as store, fencehold.connect(postgres_url) as other:
        seen = other.leader("x", lease="1h", holder_id="observer").observe()
        assert await anext(seen) is None
        async with store.leader("x", lease="1h", holder_id="me") as leader:
            assert await leader.wait_for_leadership(10)
            lease = await anext(seen)
            assert lease is not None
            assert (lease.holder_id, lease.epoch) == ("me", 1)
        assert await anext(seen) is None
        await seen.aclose()


@pytest.mark.fault("pgbouncer-transaction", "leader")
@pytest.mark.needs("pgbouncer")
async def test_leases_work_behind_pgbouncer_in_transaction_mode_without_hints(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    bouncer = own_pgbouncer(own_postgres, "transaction")
    url = through(own_postgres.dsn("postgres"), bouncer.port)
    async with (
        ready(url) as one,
        fencehold.connect(url) as two,
        one.leader("x", lease="2s") as first,
    ):
        assert await first.wait_for_leadership(10)
        async with two.leader("x", lease="2s") as second:
            term = first.term
            assert term is not None
            async with term.transaction() as tx:
                await tx.execute("CREATE TABLE t AS SELECT 1 AS a")
            await first.shutdown()
            assert await second.wait_for_leadership(10)


@pytest.mark.needs("pgbouncer")
async def test_a_pooler_that_shares_sessions_never_meets_a_prepared_statement_of_another(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    bouncer = own_pgbouncer(own_postgres, "transaction", pool_size=1)
    url = through(own_postgres.dsn("postgres"), bouncer.port)
    async with ready(url) as one, fencehold.connect(url) as two:
        first, second = await one.leases.acquire("a", "one", 60), await two.leases.acquire("b", "two", 60)
        assert first is not None
        assert second is not None
        for _ in range(10):
            assert await one.leases.renew(first, 60)
            assert await two.leases.renew(second, 60)


async def test_a_frozen_network_ends_every_call_within_its_limit(postgres_url: str) -> None:
    async with (
        FaultProxy("127.0.0.1", port_of(postgres_url)) as proxy,
        ready(through(postgres_url, proxy.port)) as store,
    ):
        store.leases._limit_s = 0.5
        proxy.freeze()
        with pytest.raises((fencehold.Uncertain, fencehold.Unavailable)):
            await store.leases.acquire("x", "me")
        proxy.heal()
        while True:  # the first tries may still meet the broken connection
            try:
                await store.leases.read("x")
                break
            except fencehold.FenceholdError:
                continue


async def test_a_server_that_accepts_and_never_answers_is_unreachable() -> None:
    kept: list[asyncio.StreamWriter] = []  # one that nobody keeps is closed, from Python 3.13 on
    silent = await asyncio.start_server(lambda r, w: kept.append(w), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    store = fencehold.connect(f"postgresql://me:{SECRET}@127.0.0.1:{port}/db?connect_timeout=2")
    with pytest.raises(fencehold.Unavailable) as caught:
        await store.open(timeout_s=3)
    assert caught.value.code == "unreachable"
    assert SECRET not in str(caught.value)
    silent.close()


async def test_an_unreachable_host_is_named_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(fencehold.Unavailable) as caught:
        await fencehold.connect(f"postgresql://me:{SECRET}@127.0.0.1:1/db").open(timeout_s=1)
    assert caught.value.code == "unreachable"
    assert "127.0.0.1" in caught.value.message
    assert SECRET not in str(caught.value) + caplog.text


async def test_a_missing_database_and_a_missing_table_say_what_to_do(postgres_url: str) -> None:
    with pytest.raises(fencehold.ConfigurationError) as caught:
        await fencehold.connect(postgres_url + "_missing").open()
    assert caught.value.code == "no_such_database"
    async with fencehold.connect(postgres_url) as store:
        with pytest.raises(fencehold.ConfigurationError) as missing:
            await store.leader("x").start()
    assert missing.value.code == "schema_missing"
    assert "fencehold init" in missing.value.hint


@pytest.mark.fault("read-only", "leader")
async def test_a_read_only_session_on_a_primary_is_refused_and_not_called_a_replica(postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as pg:
        name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
        await pg.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
    heard = Heard()
    opening = asyncio.create_task(fencehold.connect(postgres_url, facts=heard).open())
    await heard.once("store_unreachable", code="read_only")
    opening.cancel()
    await asyncio.wait([opening])
    with pytest.raises(fencehold.Unavailable) as refused:
        await fencehold.connect(postgres_url).open(0)
    assert "replica" not in str(refused.value) + refused.value.hint
    assert "default_transaction_read_only is on" in refused.value.hint


async def test_a_session_that_turns_read_only_later_names_both_causes(postgres_url: str) -> None:
    async with fencehold.connect(
        f"{postgres_url}?options=-cdefault_transaction_read_only%3Don&target_session_attrs=any"
    ) as store:
        with pytest.raises(fencehold.Unavailable) as refused:
            await store.init()
    assert refused.value.code == "read_only"
    assert "replica" in refused.value.hint
    assert "default_transaction_read_only" in refused.value.hint


@pytest.mark.fault("slow", "leader")
async def test_one_locked_row_does_not_hold_up_the_renewal_of_the_others(postgres_url: str) -> None:
    async with ready(postgres_url) as store, await psycopg.AsyncConnection.connect(postgres_url) as pg:
        leases = [await store.leases.acquire(name, "me", "60s") for name in "abc"]
        await pg.execute("SELECT * FROM fencehold_leases WHERE lease_name = 'b' FOR UPDATE")
        port = store._context.keeper.backend.leases
        keys = [lease.key(60) for lease in leases if lease]
        answers = await store._context.keeper_loop.begin(port.renew(keys, 5.0))
        assert [type(answer).__name__ for answer in answers] == ["Lease", "Busy", "Lease"]


async def test_a_thousand_leases_are_renewed_by_one_statement(postgres_url: str) -> None:
    async with ready(postgres_url) as store:
        leases = [await store.leases.acquire(f"n{i}", "me", "60s") for i in range(1000)]
        renewed = await store.leases.renew([lease for lease in leases if lease], "60s")
        assert len(renewed) == 1000
        assert len({lease.renewed_at for lease in renewed}) > 1, "each row's clock is read after its own lock"


async def test_the_driver_url_of_sqlalchemy_is_accepted(postgres_url: str) -> None:
    async with ready(postgres_url.replace("postgresql://", "postgresql+psycopg://")) as store:
        assert await store.leases.acquire("x", "me")


async def test_a_user_without_rights_gets_the_grant_to_ask_for(postgres_url: str) -> None:
    async with ready(postgres_url):
        pass
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as pg:
        await pg.execute("DROP ROLE IF EXISTS stranger")
        await pg.execute("CREATE ROLE stranger LOGIN")
    info: dict[str, Any] = {**psycopg.conninfo.conninfo_to_dict(postgres_url), "user": "stranger"}
    async with fencehold.connect(f"postgresql://stranger@127.0.0.1:{info['port']}/{info['dbname']}") as store:
        with pytest.raises(fencehold.ConfigurationError) as caught:
            await store.leases.acquire("x", "me")
    assert caught.value.code == "no_permission"
    assert "GRANT" in caught.value.hint


@pytest.mark.fault("server-restart", "fence")
@pytest.mark.fault("server-restart", "leader")
async def test_a_fenced_transaction_works_at_once_after_the_server_restarted_within_the_term(
    own_postgres: PostgresServer,
) -> None:
    async with ready(own_postgres.dsn("postgres")) as store, store.leader("x", lease="60s") as leader:
        assert await leader.wait_for_leadership(10)
        term = leader.term
        assert term is not None
        async with term.transaction() as tx:
            await tx.execute("CREATE TABLE t (a int)")
        await asyncio.to_thread(own_postgres.restart)
        async with term.transaction() as tx:
            await tx.execute("INSERT INTO t VALUES (1)")
        assert term.is_valid


async def test_a_table_in_a_schema_of_its_own_works_with_all_its_parts(postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as pg:
        await pg.execute("CREATE SCHEMA ops")
    async with fencehold.connect(postgres_url, table="ops.submission_manager_leases") as store:
        await store.init()
        async with store.leader("x", lease="60s") as leader:
            assert await leader.wait_for_leadership(10)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                cursor = await tx.execute("SELECT count(*) FROM ops.submission_manager_leases")
                assert await cursor.fetchone() == (1,)
    async with await psycopg.AsyncConnection.connect(postgres_url) as pg:
        with pytest.raises(psycopg.errors.RaiseException, match="must not be deleted"):
            await pg.execute("DELETE FROM ops.submission_manager_leases")


async def test_a_sqlalchemy_session_that_ignores_a_refused_fence_cannot_write_on(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    async with ready(postgres_url) as store, store.leader("x", lease="60s") as leader:
        assert await leader.wait_for_leadership(10)
        term, row = leader.term, await store.leases.read("x")
        assert term is not None
        assert row is not None
        assert await store.leases.release(row)
        with sqlalchemy.orm.Session(engine) as session:
            session.execute(sqlalchemy.text("CREATE TABLE t (a int)"))
            session.commit()
            with pytest.raises(fencehold.LeaseLost):
                term.fence(session)
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                session.execute(sqlalchemy.text("INSERT INTO t VALUES (1)"))
            session.commit()
            assert session.execute(sqlalchemy.text("SELECT count(*) FROM t")).scalar() == 0
    engine.dispose()
