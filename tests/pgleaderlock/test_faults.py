"""What befalls a leader on real PostgreSQL besides its network: operators, restarts, a busy loop, poolers."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from fencehold.model.errors import LeaseLost
from fencehold.testing.proxy import FaultProxy
from pgleaderlock import FixedInterval, LeaderLock, LockState
from pgleaderlock.errors import HopelessError, PoolerError
from pgleaderlock.session import open_session
from tests.across_packages.processes import ROOT
from tests.pgleaderlock.candidates import address, asked, holders, through, until, until_held, until_probed
from tests.pgleaderlock.heard import Heard
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.roles import PASSWORD, Role

HEALTH_S = 0.3


def watched(dsn: str, **options: Any) -> Heard[LeaderLock]:
    options.setdefault("retry_strategy", FixedInterval(0.05))
    options.setdefault("health_interval_s", HEALTH_S)
    return Heard(LeaderLock(dsn, 1, 100, **options))


async def test_a_leader_whose_session_an_operator_ends_knows_at_once(postgres_url: str) -> None:
    one = watched(postgres_url, health_interval_s=600)
    await one.lead()
    asked(postgres_url, "SELECT pg_terminate_backend(%s)", holders(postgres_url)[0])
    await one.reach("acquired")
    assert [told for told in one.heard if told in ("lost", "acquired")] == ["lost", "acquired"]
    await one.lock.shutdown()


async def test_pg_terminate_backend_does_not_move_leadership_to_a_follower(postgres_url: str) -> None:
    one = watched(postgres_url)
    async with LeaderLock(postgres_url, 1, 100, retry_strategy=FixedInterval(3600)) as follower:
        assert await follower.wait_for_leadership(10)
        await one.lock.start()
        await one.reach("acquire_failed")
        await follower.step_down()  # from here on it does not ask again for an hour
        await one.reach("acquired")
        asked(postgres_url, "SELECT pg_terminate_backend(%s)", holders(postgres_url)[0])
        await one.reach("lost")
        await one.reach("acquired", times=2)
        assert not follower.is_leader
        await one.lock.shutdown()


async def test_the_pages_way_to_move_leadership_works(postgres_url: str) -> None:
    page = (ROOT / "docs" / "pgleaderlock.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "SIGUSR1" in block]
    one, two = (watched(postgres_url, retry_strategy=FixedInterval(3600)) for _ in range(2))
    await one.lead()
    await two.lock.start()
    await two.reach("acquire_failed")
    exec(code, {"asyncio": asyncio, "signal": signal, "lock": one.lock})
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        await two.reach("acquired")  # its next retry would be in an hour
        await one.reach("released")  # the other may hear of it first
        assert one.heard == ["leader>releasing", "releasing>follower", "released"]
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
        await one.lock.shutdown()
        await two.lock.shutdown()


@pytest.mark.fault("server-restart", "lock")
@pytest.mark.fault("server-kill", "lock")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_server_that_restarts_is_led_again(own_postgres: PostgresServer, killed: bool) -> None:
    one = watched(own_postgres.dsn())
    await one.lead()
    if killed:
        await asyncio.to_thread(own_postgres.kill9)
        await asyncio.to_thread(own_postgres.start)
    else:
        await asyncio.to_thread(own_postgres.restart)
    await one.reach("acquired")
    assert one.heard[:3] == ["leader>follower", "lost", "error"]
    assert len(holders(own_postgres.dsn())) == 1
    await one.lock.shutdown()


async def test_a_leader_whose_password_was_changed_goes_on_trying_and_leads_again(own_postgres: PostgresServer) -> None:
    role = Role(own_postgres.dsn(), "clerk")
    with own_postgres.asking_for_passwords():
        one = watched(role.url)
        await one.lead()
        role.owner_says("ALTER ROLE {} PASSWORD {}", "another")
        role.cut_off()
        await one.reach("error", times=3)
        assert "authentication failed" in str(one.errors[-1])
        role.owner_says("ALTER ROLE {} PASSWORD {}", PASSWORD)
        await one.reach("acquired")
        await one.lock.shutdown()


async def test_a_lock_whose_first_login_is_refused_stops_and_says_why(own_postgres: PostgresServer) -> None:
    role = Role(own_postgres.dsn(), "clerk")
    with own_postgres.asking_for_passwords():
        one = watched(role.url.replace(PASSWORD, "wrong"))
        await one.lock.start()
        assert "acquired" not in await one.end()
        assert isinstance(one.errors[0], HopelessError)


async def test_a_loop_blocked_for_three_intervals_keeps_the_lock(postgres_url: str) -> None:
    interval_s = 0.6
    one = watched(postgres_url, health_interval_s=interval_s)
    await one.lead()
    pids = holders(postgres_url)
    await until_probed(postgres_url, pids[0])
    await asyncio.sleep(interval_s * 0.9)  # right before the next probe is due
    time.sleep(interval_s * 3)
    assert one.lock.is_leader
    await until_probed(postgres_url, pids[0])
    assert (one.heard, holders(postgres_url)) == ([], pids)
    await one.lock.shutdown()


@pytest.mark.fault("blocked-loop", "lock")
async def test_a_loop_blocked_for_longer_does_not_believe_it_still_leads(postgres_url: str) -> None:
    one = watched(postgres_url)
    await one.lead()
    time.sleep(HEALTH_S * 5)
    assert not one.lock.is_leader  # no turn of the loop was needed, and no error
    assert one.lock.state is LockState.LEADER
    await one.reach("lost")
    await one.lock.shutdown()


async def test_a_lock_lost_in_a_living_session_is_noticed(postgres_url: str) -> None:
    opened: list[psycopg.AsyncConnection[Any]] = []

    async def connect() -> psycopg.AsyncConnection[Any]:
        opened.append(await psycopg.AsyncConnection.connect(postgres_url))
        return opened[-1]

    one = watched("", connect_fn=connect)
    await one.lead()
    await opened[0].execute("SELECT pg_advisory_unlock_all()")
    await one.reach("lost")
    await one.reach("acquired")
    assert "no longer holds" in str(one.errors[0])
    assert len(opened) == 2
    await one.lock.shutdown()


async def test_a_session_of_our_own_that_the_server_still_believes_in_does_not_stand_in_our_way(
    postgres_url: str,
) -> None:
    async with FaultProxy(*address(postgres_url)) as proxy:
        ways = [through(postgres_url, proxy.port), postgres_url]

        async def connect() -> psycopg.AsyncConnection[Any]:
            return await psycopg.AsyncConnection.connect(ways.pop(0))

        one = watched("", connect_fn=connect, reconnect_grace_s=30, health_interval_s=1)
        await one.lead()
        pids = holders(postgres_url)
        proxy.freeze()  # our end of the session does not reach the server
        await one.reach("reconnecting>leader")
        assert not {"lost", "acquired"} & set(one.heard)
        assert holders(postgres_url) not in ([], pids)
        await one.lock.shutdown()


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    """What only the collector would close counts as left behind."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.fault("cancel", "lock")
@pytest.mark.usefixtures("no_garbage_collector")
async def test_cancelled_at_any_moment_of_an_attempt_nothing_is_left(postgres_url: str) -> None:
    kept = []
    for turns in range(60):
        one = watched(postgres_url, health_interval_s=600, fencing_name="job" if turns % 2 else None)
        kept.append(one)
        await one.lock.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert one.lock._task is not None
        one.lock._task.cancel()
        await one.lock.shutdown()
        assert one.lock.state is LockState.STOPPED
    await until_held(postgres_url, 0)
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgleaderlock'"
    await until(postgres_url, left, met=lambda counts: counts == [0])


async def test_followers_told_of_another_key_stay_where_they_are(postgres_url: str) -> None:
    one = watched(postgres_url, retry_strategy=FixedInterval(3600))
    async with LeaderLock(postgres_url, 1, 100) as leader, LeaderLock(postgres_url, 1, 101) as other:
        assert await leader.wait_for_leadership(10)
        assert await other.wait_for_leadership(10)
        await one.lock.start()
        await one.reach("acquire_failed")
        await other.step_down()
        await leader.shutdown()
        await one.reach("acquired")
        assert one.heard.count("acquire_failed") == 1
        await one.lock.shutdown()


async def test_a_release_told_between_the_refusal_and_the_wait_is_not_missed(postgres_url: str) -> None:
    holder, follower = [
        await open_session(postgres_url, None, 1, 100, timeout_s=60, limit_s=5) for _ in range(2)
    ]  # fmt: skip
    assert await holder.try_lock(5)
    assert not await follower.try_lock(5)
    assert await holder.unlock(5)
    await follower.run("SELECT 1", {}, 5)  # the news arrives along with this answer
    async with asyncio.timeout(10):
        await follower.wait_for_news(3600, asyncio.Event())
    assert await follower.try_lock(5)
    await holder.close()
    await follower.close()


async def test_the_servers_limits_are_on_the_session_that_leads(postgres_url: str) -> None:
    one = await open_session(postgres_url, None, 1, 100, timeout_s=12.5, limit_s=5)
    shown = {"name": "idle_session_timeout"}
    sql = "SELECT current_setting(%(name)s)"
    assert await one.run(sql, shown, 5) == ("0",)  # a follower may idle
    assert await one.try_lock(5)
    assert await one.run(sql, shown, 5) == ("12500ms",)
    assert await one.run(sql, {"name": "tcp_user_timeout"}, 5) == ("10000",)
    assert await one.unlock(5)
    assert await one.run(sql, shown, 5) == ("0",)
    await one.close()


# Fencing


async def test_epochs_rise_and_a_stale_term_writes_nothing(postgres_url: str) -> None:
    asked(postgres_url, "CREATE TABLE job (id int PRIMARY KEY, state text)")
    one = watched(postgres_url, fencing_name="job")
    await one.lead()
    first = one.lock.term
    assert first is not None
    async with first.transaction() as tx:
        await tx.execute("INSERT INTO job VALUES (1, 'first')")
    await one.lock.step_down()
    assert not first.is_valid
    with pytest.raises(LeaseLost):
        async with first.transaction() as tx:
            await tx.execute("UPDATE job SET state = 'stale'")
    await one.reach("acquired")
    assert one.lock.term is not None
    assert one.lock.term.epoch > first.epoch
    await one.lock.shutdown()
    assert one.lock.term is None
    assert asked(postgres_url, "SELECT state FROM job") == ["first"]


@pytest.mark.fault("slow", "lock")
async def test_a_new_leader_waits_for_the_old_ones_open_transaction(postgres_url: str) -> None:
    asked(postgres_url, "CREATE TABLE job (id int PRIMARY KEY, state text)")
    one = watched(postgres_url, fencing_name="job", health_interval_s=2, auto_reacquire=False)
    two = watched(postgres_url, fencing_name="job", health_interval_s=2)
    await one.lead()
    term = one.lock.term
    assert term is not None
    async with await psycopg.AsyncConnection.connect(postgres_url) as mine, mine.transaction():
        await term.fence(mine)
        await mine.execute("INSERT INTO job VALUES (1, 'first')")
        await two.lock.start()
        asked(postgres_url, "SELECT pg_terminate_backend(%s)", holders(postgres_url)[0])
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%INSERT INTO%%'"
        await until(postgres_url, waits, met=lambda counts: counts == [1])
        assert not two.lock.is_leader
    await two.reach("acquired")
    assert two.lock.term is not None
    assert two.lock.term.epoch == term.epoch + 1
    assert asked(postgres_url, "SELECT state FROM job") == ["first"]
    await two.lock.shutdown()
    await one.lock.shutdown()


# Configuration that no retry can mend


@pytest.mark.fault("pgbouncer-transaction", "lock")
@pytest.mark.needs("pgbouncer")
async def test_a_pooler_in_transaction_mode_is_refused_with_the_fix(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    one = watched(own_pgbouncer(own_postgres, "transaction").dsn())
    await one.lock.start()
    assert (await one.end())[-2:] == ["follower>stopped", "stopped"]
    assert isinstance(one.errors[0], PoolerError)
    assert "pool_mode = session" in str(one.errors[0])
    assert holders(own_postgres.dsn()) == []


@pytest.mark.fault("pgbouncer-session", "lock")
@pytest.mark.needs("pgbouncer")
async def test_a_pooler_in_session_mode_works(
    own_postgres: PostgresServer, own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    dsn = own_pgbouncer(own_postgres, "session").dsn()
    one, two = watched(dsn), watched(dsn, retry_strategy=FixedInterval(3600))
    await one.lead()
    await two.lock.start()
    await two.reach("acquire_failed")
    assert len(holders(own_postgres.dsn())) == 1
    await one.lock.shutdown()  # not step_down: it would lead again if the hint of its release came late
    await two.reach("acquired")
    await two.lock.shutdown()
    await until_held(own_postgres.dsn(), 0)


@pytest.mark.parametrize("password", ["geh/eim", "geh@eim", "geh:eim/x"])
async def test_a_dsn_that_cannot_be_read_is_not_tried_for_ever(password: str) -> None:
    one = watched(f"postgresql://me:{password}@localhost:5432/x")
    await one.lock.start()
    assert (await one.end())[-1] == "stopped"
    assert isinstance(one.errors[0], HopelessError)
    assert "eim" not in str(one.errors[0])


async def test_an_sqlalchemy_url_is_understood(postgres_url: str) -> None:
    url = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    async with LeaderLock(url, 1, 100, fencing_name="job") as lock:
        assert await lock.wait_for_leadership(10)
        assert lock.term is not None
