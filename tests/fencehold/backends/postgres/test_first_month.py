"""What befalls a leader or a worker in its first month: a full server, a changed password, limits of its role."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

import fencehold
import fencehold.sync
from pgleaderlock import FixedInterval, LeaderLock
from tests.fencehold.backends.postgres.test_outages import prepared
from tests.fencehold.runtime.outbox.scene import Heard, running
from tests.servers.postgres import AnyPostgres, PostgresServer
from tests.servers.roles import PASSWORD, Role

LEASE = "12s"  # renewed every 4 s: there is time for a fault and its end within one lease
SHORT = {
    "statement_timeout": "150ms",
    "lock_timeout": "50ms",
    "idle_in_transaction_session_timeout": "150ms",
    "idle_session_timeout": "150ms",
    "transaction_timeout": "300ms",
}
TRANSACTION_TIMEOUT_SINCE = 17


@pytest.fixture
def role(own_postgres: PostgresServer) -> Role:
    asyncio.run(prepared(own_postgres.dsn()))
    role = Role(own_postgres.dsn(), "clerk")
    role.may_use_all_tables()
    return role


@pytest.mark.long
async def test_too_many_connections_while_renewing_cost_no_term(role: Role) -> None:
    heard = Heard()
    async with fencehold.connect(role.url, facts=heard) as store, store.leader("x", lease=LEASE) as leader:
        assert await leader.wait_for_leadership(30)
        role.owner_says("ALTER ROLE {} CONNECTION LIMIT 0")  # 53300 for whoever logs in
        role.cut_off()
        failed = await heard.once("leader_renew_failed")
        assert "too_many_connections" in failed["sql_error"]
        role.owner_says("ALTER ROLE {} CONNECTION LIMIT -1")
        await heard.once("leader_renewed", lease_epoch=1)
        assert heard.all("leader_lost") == []


@pytest.mark.long
async def test_a_password_changed_while_renewing_costs_no_term(own_postgres: PostgresServer, role: Role) -> None:
    heard = Heard()
    with own_postgres.asking_for_passwords():
        async with fencehold.connect(role.url, facts=heard) as store, store.leader("x", lease=LEASE) as leader:
            assert await leader.wait_for_leadership(30)
            role.owner_says("ALTER ROLE {} PASSWORD {}", "another")
            role.cut_off()
            failed = await heard.once("leader_renew_failed")
            assert "login_refused" in failed["sql_error"]
            role.owner_says("ALTER ROLE {} PASSWORD {}", PASSWORD)
            await heard.once("leader_renewed", lease_epoch=1)
            assert heard.all("leader_lost") == []


@pytest.fixture
def hurried(postgres_server: AnyPostgres, postgres_url: str) -> Iterator[Role]:
    """A role whose sessions have limits that are shorter than ours."""
    asyncio.run(prepared(postgres_url))
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    role.may_use_all_tables()
    for name, value in SHORT.items():
        if name == "transaction_timeout" and postgres_server.version < TRANSACTION_TIMEOUT_SINCE:
            continue
        role.owner_says(f"ALTER ROLE {{}} SET {name} = {{}}", value)
    yield role
    role.drop()


async def test_limits_of_a_role_that_are_shorter_than_ours_end_neither_renewals_nor_fenced_writes(
    hurried: Role,
) -> None:
    heard = Heard()
    async with fencehold.connect(hurried.url, facts=heard) as store:
        async with store.leader("x", lease="1.5s") as leader:
            assert await leader.wait_for_leadership(30)
            await heard.once("leader_renewed", times=2)
            assert leader.term is not None
            async with leader.term.transaction() as tx:
                await asyncio.sleep(0.3)  # longer than a pause may last for this role
                await tx.execute("SELECT pg_sleep(0.3)")
                await tx.execute("UPDATE fencehold_leases SET step_down_epoch = 0")
        assert heard.all("leader_renew_failed") == []
        assert heard.all("leader_lost") == []


def test_limits_of_a_role_do_not_end_a_fenced_transaction_of_the_sync_store(hurried: Role) -> None:
    with fencehold.sync.connect(hurried.url) as store, store.leader("x", lease="12s") as leader:
        assert leader.wait_for_leadership(30)
        assert leader.term is not None
        with leader.term.transaction() as tx:
            time.sleep(0.3)  # longer than a pause may last for this role
            tx.execute("SELECT pg_sleep(0.3)")
            tx.execute("UPDATE fencehold_leases SET step_down_epoch = 0")


@asynccontextmanager
async def fenced(url: str, term: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A transaction that is open, with the fence of this term in it: whoever comes next has to wait for its end."""
    async with await psycopg.AsyncConnection.connect(url) as conn:
        await term.fence(conn)
        yield conn


async def test_a_takeover_waits_for_a_fenced_transaction_longer_than_a_statement_of_its_role_may_take(
    hurried: Role,
) -> None:
    heard, errors = Heard(), list[Exception]()
    async with fencehold.connect(hurried.owner_url) as old, fencehold.connect(hurried.url, facts=heard) as new:
        before, after = old.leader("x", lease=LEASE), new.leader("x", lease=LEASE)
        after.on_error(errors.append)
        await before.start()
        assert await before.wait_for_leadership(30)
        async with fenced(hurried.owner_url, before.term) as conn:
            await before.shutdown()
            await after.start()
            await asyncio.sleep(0.6)
            assert not after.is_leader
            await conn.commit()
            assert await after.wait_for_leadership(30)
        await after.shutdown()
    assert errors == []


async def test_a_lock_waits_for_a_fenced_transaction_longer_than_a_statement_of_its_role_may_take(
    hurried: Role,
) -> None:
    before, after = (LeaderLock(url, 1, 2, fencing_name="x") for url in (hurried.owner_url, hurried.url))
    errors: list[Exception] = []
    after.on_error(errors.append)
    async with before:
        assert await before.wait_for_leadership(30)
        async with fenced(hurried.owner_url, before.term) as conn:
            await before.shutdown()
            async with after:
                assert not await after.wait_for_leadership(0.6)
                await conn.commit()
                assert await after.wait_for_leadership(30)
                assert after.term is not None
    assert errors == []


async def test_a_follower_of_pgleaderlock_waits_longer_than_an_idle_session_of_its_role_may_live(hurried: Role) -> None:
    urls = hurried.owner_url, hurried.url
    leader, follower = (LeaderLock(url, 1, 2, retry_strategy=FixedInterval(3600)) for url in urls)
    told: list[str] = []
    follower.on_error(lambda error: told.append(str(error)))
    follower.on_acquire_failed(lambda: told.append("refused"))
    async with leader:
        assert await leader.wait_for_leadership(30)
        async with follower:
            assert not await follower.wait_for_leadership(0.6)
            await leader.step_down()
            assert await follower.wait_for_leadership(30)  # by notification: its next retry would be in an hour
    assert told == ["refused"]


async def test_init_waits_for_another_init_longer_than_a_statement_of_its_role_may_take(hurried: Role) -> None:
    hurried.owner_says("GRANT CREATE ON SCHEMA public TO {}")
    holds = psycopg.connect(hurried.owner_url)
    holds.execute("SELECT pg_advisory_xact_lock(1718511459, 1)")  # as an init under way does
    async with fencehold.connect(hurried.url, table="others") as store:
        making = asyncio.create_task(store.init())
        await asyncio.sleep(0.5)  # three times as long as a statement may take
        assert not making.done()
        holds.close()
        assert await making


async def test_a_session_that_waits_longer_than_its_role_may_still_hears_of_an_event(hurried: Role) -> None:
    handled = asyncio.Event()

    async def handle(event: Any) -> None:
        await asyncio.sleep(0.3)
        handled.set()

    heard = Heard()
    async with fencehold.connect(hurried.url, facts=heard) as store:
        worker = store.outbox().worker(handle, poll_every="1h", worker_id="w")
        async with running(worker):
            await heard.once("worker_started")
            await asyncio.sleep(0.5)  # longer than an idle session may live
            await store.outbox().add("a", 1)
            await asyncio.wait_for(handled.wait(), 30)
    assert heard.all("worker_store_failed") == []
