"""A stale leader cannot write, however it became stale; controls without the fence show that each test can tell.

The pauses are aimed at the moment between check and write: random chaos hardly ever hits it.
"""

import datetime as dt

import psycopg
import pytest

import fencehold
from fencehold.testing.proxy import ThreadedFaultProxy
from tests.across_packages.processes import Process, contenders, execute, ledger, prepare
from tests.servers.postgres import PostgresServer

STALE = "late"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


async def until_renewed(url: str, since: fencehold.Lease, times: int) -> None:
    """Wait until the lease has been renewed so often, by its own row."""
    async with fencehold.connect(url) as store:
        renewed = {since.renewed_at}
        while len(renewed) <= times:
            lease = await store.leases.read(since.name)
            assert lease is not None
            assert (lease.epoch, lease.is_live) == (since.epoch, True), "the lease was lost"
            renewed.add(lease.renewed_at)


def paused_between_check_and_write(start: object, url: str, *options: str) -> tuple[Process, Process]:
    """A checked that it leads and is about to write; it is frozen there, and B has taken over and written."""
    assert callable(start)
    a = start("A", "--lease", "1s", *options)
    a.wait_for("leading", epoch=1)
    b = start("B", "--lease", "1s")
    b.wait_for("started")
    a.say("check", STALE)
    assert a.wait_for("checked")["is_valid"] is True
    a.wait_for("blocked")
    a.freeze(url)
    b.wait_for("leading", epoch=2)
    b.say("write", "fresh")
    b.wait_for("wrote", value="fresh")
    a.thaw()
    a.say("go")
    return a, b


@pytest.mark.fault("freeze", "fence")
async def test_a_leader_frozen_past_expiry_cannot_write(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a, _ = paused_between_check_and_write(start, url)
        assert a.wait_for("refused", value=STALE)["error"] == "LeaseLost"
        assert await ledger(url) == [("B", 2, "fresh")]


async def test_the_fence_alone_refuses_even_when_the_local_clock_stood_still(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a, _ = paused_between_check_and_write(start, url, "--stopped-clock")
        assert a.wait_for("refused", value=STALE)["error"] == "LeaseLost"
        assert await ledger(url) == [("B", 2, "fresh")]


async def test_control_without_fence_the_frozen_leader_does_write(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a, _ = paused_between_check_and_write(start, url, "--fence", "none")
        a.wait_for("wrote", value=STALE)
        assert await ledger(url) == [("B", 2, "fresh"), ("A", 1, STALE)]


async def row_lock_waiters(url: str) -> int:
    rows = await execute(url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return int(rows[0][0])


async def blocked_on_a_row_lock(start: object, url: str, *options: str) -> tuple[Process, Process]:
    """A's write waits for a row that somebody else has locked, past its lease; B has taken over; then the lock goes."""
    assert callable(start)
    a = start("A", "--lease", "1s", *options)
    a.wait_for("leading", epoch=1)
    async with await psycopg.AsyncConnection.connect(url) as blocker:
        await blocker.execute("SELECT * FROM target WHERE id = 1 FOR UPDATE")
        a.say("target", STALE)
        while not await row_lock_waiters(url):
            pass
        a.freeze()
        b = start("B", "--lease", "1s")
        b.wait_for("leading", epoch=2)
    b.say("target", "fresh")
    return a, b


@pytest.mark.fault("slow", "fence", "postgres")
async def test_a_writer_blocked_on_a_row_lock_past_expiry_cannot_commit_after_a_takeover(postgres_url: str) -> None:
    await prepare(postgres_url)
    with contenders(postgres_url) as start:
        a, b = await blocked_on_a_row_lock(start, postgres_url)
        b.wait_for("wrote", value="fresh")
        a.thaw()
        a.wait_for("refused", value=STALE)
        assert await execute(postgres_url, "SELECT value, epoch FROM target") == [("fresh", 2)]


async def test_control_without_fence_the_blocked_writer_commits_under_its_old_epoch(postgres_url: str) -> None:
    await prepare(postgres_url)
    with contenders(postgres_url) as start:
        a, _ = await blocked_on_a_row_lock(start, postgres_url, "--fence", "none")
        a.thaw()
        a.wait_for("wrote", value=STALE, epoch=1)


@pytest.mark.fault("freeze", "fence", "postgres")
async def test_a_holder_frozen_inside_its_transaction_delays_a_takeover_by_at_most_its_lease(postgres_url: str) -> None:
    await prepare(postgres_url)
    with contenders(postgres_url) as start:
        a = start("A", "--lease", "2s")
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "2s")
        b.wait_for("started")
        a.say("open", STALE)
        a.wait_for("opened")
        a.freeze()
        async with fencehold.connect(postgres_url) as store:
            abandoned = await store.leases.read("job")
            b.wait_for("leading", epoch=2)
            taken = await store.leases.read("job")
        assert abandoned is not None
        assert taken is not None
        assert taken.acquired_at - abandoned.expires_at <= dt.timedelta(seconds=2), "delayed by more than a lease"
        a.thaw()
        a.say("go")
        a.wait_for("refused", value=STALE)
        assert await ledger(postgres_url) == []


@pytest.mark.fault("kill", "fence", "postgres")
async def test_a_holder_killed_inside_its_transaction_has_written_nothing_and_another_leads(postgres_url: str) -> None:
    await prepare(postgres_url)
    with contenders(postgres_url) as start:
        a = start("A", "--lease", "1s")
        a.wait_for("leading", epoch=1)
        a.say("open", STALE)
        a.wait_for("opened")
        a.kill()
        b = start("B", "--lease", "1s")
        b.wait_for("leading", epoch=2)
        b.say("write", "fresh")
        b.wait_for("wrote", value="fresh")
        assert await ledger(postgres_url) == [("B", 2, "fresh")]


@pytest.mark.fault("freeze", "fence", "sqlite")
@pytest.mark.fault("kill", "fence", "sqlite")
async def test_on_sqlite_a_holder_frozen_inside_its_transaction_blocks_until_it_dies(sqlite_url: str) -> None:
    await prepare(sqlite_url)
    with contenders(sqlite_url) as start:
        a = start("A", "--lease", "1s")
        a.wait_for("leading", epoch=1)
        a.say("open", STALE)
        a.wait_for("opened")
        a.freeze()
        async with fencehold.connect(sqlite_url) as store:
            while (lease := await store.leases.read("job")) is None or lease.is_live:
                pass
            store.leases._limit_s = 0.1
            with pytest.raises(fencehold.Unavailable):
                await store.leases.acquire("job", "B")
        a.kill()
        start("B", "--lease", "1s").wait_for("leading", epoch=2)
        assert await ledger(sqlite_url) == []


@pytest.mark.fault("blocked-loop", "leader")
async def test_a_blocked_event_loop_keeps_the_lease_below_the_stall_limit(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a = start("A", "--lease", "1s", "--stall-limit", "60s")
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "1s")
        b.wait_for("started")
        a.say("block")
        a.wait_for("blocked")
        async with fencehold.connect(url) as store:
            lease = await store.leases.read("job")
        assert lease is not None
        await until_renewed(url, lease, times=8)  # well over two leases
        a.say("go")
        assert a.wait_for("freed") | {"is_valid": True, "is_leader": True} == a.events[-1]
        a.say("write", "mine")
        a.wait_for("wrote", value="mine", epoch=1)


@pytest.mark.fault("blocked-loop", "leader")
@pytest.mark.fault("blocked-loop", "fence")
async def test_a_blocked_event_loop_loses_the_lease_beyond_the_stall_limit_and_cannot_write(url: str) -> None:
    await prepare(url)
    with contenders(url) as start:
        a = start("A", "--lease", "1s", "--stall-limit", "1s")
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "1s")
        b.wait_for("started")
        a.say("check", STALE)
        a.wait_for("blocked")
        b.wait_for("leading", epoch=2)
        b.say("write", "fresh")
        b.wait_for("wrote", value="fresh")
        a.say("go")
        assert a.wait_for("refused", value=STALE)["error"] == "LeaseLost"
        assert await ledger(url) == [("B", 2, "fresh")]


@pytest.mark.fault("frozen-tcp", "leader", "postgres")
@pytest.mark.fault("frozen-tcp", "fence", "postgres")
async def test_a_leader_behind_a_frozen_network_stops_trusting_itself_and_cannot_write(postgres_url: str) -> None:
    await prepare(postgres_url)
    host, port = address(postgres_url)
    with ThreadedFaultProxy(host, port) as proxy, contenders(postgres_url) as start:
        through = postgres_url.replace(f":{port}/", f":{proxy.port}/")
        a = start("A", "--lease", "1s", at=through)
        a.wait_for("leading", epoch=1)
        b = start("B", "--lease", "1s")
        b.wait_for("started")
        proxy.freeze()
        over = a.wait_for("over", epoch=1)
        led = b.wait_for("leading", epoch=2)
        assert over["at_s"] < led["at_s"], "the old leader must stop before the new one starts"
        a.say("write", STALE)
        assert a.wait_for("refused", value=STALE)["error"] == "LeaseLost"
        proxy.heal()
        a.say("write", STALE)
        assert a.wait_for("refused", value=STALE)["error"] == "LeaseLost"
        assert await ledger(postgres_url) == []


@pytest.mark.fault("server-kill", "leader", "postgres")
@pytest.mark.fault("server-kill", "fence", "postgres")
async def test_a_leader_whose_database_crashed_mid_term_cannot_write_after_a_takeover(
    own_postgres: PostgresServer,
) -> None:
    url = own_postgres.dsn("postgres")
    await prepare(url)
    with contenders(url) as start:
        a = start("A", "--lease", "1s", "--stopped-clock")
        a.wait_for("leading", epoch=1)
        a.say("check", STALE)
        a.wait_for("blocked")
        own_postgres.kill9()
        a.freeze()
        own_postgres.start()
        b = start("B", "--lease", "1s")
        b.wait_for("leading", epoch=2)
        b.say("write", "fresh")
        b.wait_for("wrote", value="fresh")
        a.thaw()
        a.say("go")
        a.wait_for("refused", value=STALE)
        assert await ledger(url) == [("B", 2, "fresh")]


def address(url: str) -> tuple[str, int]:
    info = psycopg.conninfo.conninfo_to_dict(url)
    return str(info["host"]), int(str(info["port"]))
