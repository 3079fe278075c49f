"""The lock on a real server, behind a network that breaks on command."""

from __future__ import annotations

import asyncio
import time

import pytest

from fencehold.testing.proxy import Fault
from mssqlleaderlock import FixedInterval, LeaderLock, LockState
from tests.mssqlleaderlock.onlooker import executed, is_free, new_name, place, until, until_free, watched

pytestmark = pytest.mark.limit(120)

RARE_S = 10
AT_ONCE_S = 5.0  # before the next probe is due


async def test_from_start_to_a_clean_stop(mssql_url: str) -> None:
    async with place(mssql_url) as one:
        await one.lock.start()
        await one.reach("acquired")
        assert not await one.is_free()
        await one.lock.shutdown()
        assert await one.is_free()
        assert one.heard == [
            "stopped>follower", "follower>acquiring", "acquiring>leader", "acquired",
            "leader>releasing", "releasing>stopped", "released", "stopped",
        ]  # fmt: skip


async def test_of_two_exactly_one_leads_and_the_other_follows_when_it_steps_down(mssql_url: str) -> None:
    async with place(mssql_url) as one:
        two = one.rival()
        await one.lead()
        await two.lock.start()
        await two.reach("acquire_failed", times=6)
        assert (one.lock.is_leader, two.lock.is_leader) == (True, False)
        assert (one.errors, two.errors) == ([], [])
        await one.lock.shutdown()
        await two.reach("acquired")
        assert (one.lock.is_leader, two.lock.is_leader) == (False, True)
        await two.lock.shutdown()
        assert await one.is_free()


async def test_good_probes_change_nothing_and_one_lock_is_one_session(mssql_url: str) -> None:
    async with place(mssql_url, health_interval_s=0.5) as one:
        await one.lead()
        session_id = one.session.session_id
        opened = one.proxy.counters.connections_total
        answered = one.proxy.counters.bytes_to_client
        await until(lambda: one.proxy.counters.bytes_to_client > answered + 400)
        assert (one.heard, one.session.session_id) == ([], session_id)
        assert one.proxy.counters.connections_total == opened


async def test_a_lock_taken_twice_is_free_after_one_release(mssql_url: str) -> None:
    async with place(mssql_url, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        with pytest.raises(Exception, match="holds the lock already"):
            await one.session.try_lock(5)
        await one.lock.step_down()
        assert await one.is_free()


# A network that breaks


@pytest.mark.fault("reset", "lock")
@pytest.mark.parametrize("again", [True, False])
async def test_a_cut_connection_is_a_loss_at_once(mssql_url: str, again: bool) -> None:
    async with place(mssql_url, health_interval_s=RARE_S, auto_reacquire=again) as one:
        await one.lead()
        began_s = time.monotonic()
        one.proxy.cut()
        await one.reach("error")
        assert time.monotonic() - began_s < AT_ONCE_S  # no probe was due
        assert not one.lock.is_leader
        assert one.heard[:3] == [f"leader>{'follower' if again else 'stopped'}", "lost", "error"]
        one.proxy.heal()
        if again:
            await one.reach("acquired")


async def test_a_leader_on_a_silent_network_steps_back_and_the_lock_is_free_when_the_server_knows(
    mssql_url: str,
) -> None:
    async with place(mssql_url) as one:
        two = one.rival()
        await one.lead()
        one.proxy.freeze()
        await one.reach("lost")
        assert not one.lock.is_leader
        await two.lock.start()
        await two.reach("acquire_failed")  # the server has not been told of the end yet
        one.proxy.cut()
        await two.reach("acquired")
        assert not one.lock.is_leader
        await two.lock.shutdown()


async def test_a_lost_answer_to_the_request_leaves_no_lock(mssql_url: str) -> None:
    async with place(mssql_url) as one:
        trip = one.proxy.when_seen("sp_getapplock".encode("utf-16-le"), Fault.DROP_ANSWERS)
        await one.lock.start()
        await trip.wait(10)
        await until(lambda: not is_free(mssql_url, one.name))  # locked, and the answer will never come
        await one.lock.shutdown()
        assert one.heard[-2:] == ["acquiring>stopped", "stopped"]
        one.proxy.heal()
        await until_free(mssql_url, one.name)


async def test_within_the_grace_leadership_is_regained_and_nothing_is_told(mssql_url: str) -> None:
    async with place(mssql_url, reconnect_grace_s=60) as one:
        await one.lead()
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        assert (one.lock.state, one.lock.is_leader) == (LockState.RECONNECTING, False)
        one.proxy.heal()
        await one.reach("reconnecting>leader")
        assert one.lock.is_leader
        assert not {"lost", "acquired"} & set(one.heard)


async def test_taken_by_another_within_the_grace_is_a_loss(mssql_url: str) -> None:
    async with place(mssql_url, reconnect_grace_s=60) as one:
        await one.lead()
        one.proxy.cut()
        await one.reach("leader>reconnecting")
        two = one.rival()
        await two.lead()
        one.proxy.heal()
        await one.reach("lost")
        assert one.heard[:2] == ["leader>reconnecting", "error"]
        assert "reconnecting>follower" in one.heard
        await two.lock.shutdown()


async def test_a_release_that_hangs_is_cut_off_and_the_lock_is_free(mssql_url: str) -> None:
    async with place(mssql_url, health_interval_s=RARE_S, retry_strategy=FixedInterval(3600)) as one:
        await one.lead()
        one.proxy.drop_requests()
        await one.lock.step_down(timeout_s=0.2)
        assert one.lock.state is LockState.FOLLOWER
        await until_free(mssql_url, one.name)


async def test_a_server_that_cannot_be_reached_is_an_error_and_no_loss(mssql_url: str) -> None:
    async with place(mssql_url) as one:
        one.proxy.cut()
        await one.lock.start()
        await one.reach("error")
        assert "lost" not in one.heard
        one.proxy.heal()
        await one.reach("acquired")


# What others do to the session


async def test_a_leader_whose_session_an_operator_ends_knows_at_once(mssql_url: str) -> None:
    async with place(mssql_url, health_interval_s=RARE_S) as one:
        await one.lead()
        began_s = time.monotonic()
        await asyncio.to_thread(executed, mssql_url, f"KILL {one.session.session_id}")
        await one.reach("lost")
        assert time.monotonic() - began_s < AT_ONCE_S
        await one.reach("acquired")


async def test_a_lock_lost_in_a_living_session_is_noticed(mssql_url: str) -> None:
    async with place(mssql_url) as one:
        await one.lead()
        release = "EXEC sp_releaseapplock @Resource = :name, @LockOwner = N'Session'; SELECT 1;"
        await one.session.row(f"SET NOCOUNT ON; {release}", {"name": one.name}, 5)
        await one.reach("error")
        assert "no longer holds" in str(one.errors[0])
        await one.reach("acquired")


async def test_a_session_that_is_no_longer_the_one_that_was_marked_is_noticed(mssql_url: str) -> None:
    async with place(mssql_url) as one:
        await one.lead()
        forget = "EXEC sp_set_session_context @key = N'mssqlleaderlock', @value = N'another'; SELECT 1;"
        await one.session.row(f"SET NOCOUNT ON; {forget}", {}, 5)
        await one.reach("error")
        assert "another server session answers" in str(one.errors[0])
        assert one.heard[:2] == ["leader>follower", "lost"]


@pytest.mark.fault("blocked-loop", "lock")
async def test_a_loop_that_was_blocked_for_too_long_does_not_believe_it_still_leads(mssql_url: str) -> None:
    interval_s = 0.5
    async with place(mssql_url, health_interval_s=interval_s) as one:
        await one.lead()
        time.sleep(interval_s * 5)
        assert not one.lock.is_leader  # no turn of the loop was needed, and no error
        assert one.lock.state is LockState.LEADER
        await one.reach("lost")


@pytest.mark.fault("cancel", "lock")
async def test_cancelled_at_any_moment_of_an_attempt_nothing_is_left(mssql_url: str) -> None:
    name = new_name()
    for turn in range(8):
        one = watched(mssql_url, name, health_interval_s=RARE_S)
        await one.lock.start()
        await asyncio.sleep(0.04 * turn**2)  # from before it connects to after it leads
        assert one.lock._task is not None
        one.lock._task.cancel()
        await one.lock.shutdown()
        assert one.lock.state is LockState.STOPPED
    await until_free(mssql_url, name)


# Names


@pytest.mark.parametrize("name", ["J" * 255, "\N{GRINNING FACE}" * 60 + "é", "it's; a -- name/with\\all"])
async def test_a_name_is_the_whole_name_and_its_case_counts(mssql_url: str, name: str) -> None:
    async with LeaderLock(mssql_url, name) as one, LeaderLock(mssql_url, name[:-1] + "j") as other:
        assert await one.wait_for_leadership(40)
        assert await other.wait_for_leadership(40)
        assert not await asyncio.to_thread(is_free, mssql_url, name)
