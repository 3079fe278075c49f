"""The life of the lock on virtual time, and a proof that ages; what it shares is tested with pgleaderlock."""

import asyncio
import logging

import pytest

from fencehold.model.election.lock_errors import PoolerError
from mssqlleaderlock import ConnectionError as LostConnection
from mssqlleaderlock import FixedInterval, LockState, ShutdownError
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.mssqlleaderlock.fake_session import Scene

WHOLE_LIFE = [
    "stopped>follower", "follower>acquiring", "acquiring>leader", "acquired",
    "leader>releasing", "releasing>stopped", "released", "stopped",
]  # fmt: skip


@virtual
async def test_from_start_to_a_clean_stop_everything_is_told_in_order() -> None:
    scene = Scene()
    async with scene.lock:
        assert await scene.lock.wait_for_leadership(10)
        await asyncio.sleep(3.5)
    assert scene.heard == WHOLE_LIFE
    assert scene.server.count("probe") == 3
    assert (scene.server.holder, scene.open_sessions, scene.lock.state) == (None, 0, LockState.STOPPED)


@virtual
async def test_a_refused_follower_waits_its_delay_on_the_same_session() -> None:
    scene = Scene(retry_strategy=FixedInterval(7))
    scene.server.holder = "another"
    await scene.lock.start()
    await scene.reach("acquire_failed", times=3)
    assert (scene.server.count("lock"), scene.server.count("connect")) == (3, 1)
    assert await scene.lock.wait_for_leadership(0.1) is False
    scene.server.holder = None
    assert await scene.lock.wait_for_leadership(10)
    await scene.lock.shutdown()


@virtual
async def test_a_step_down_releases_and_follows_on() -> None:
    scene = Scene()
    await scene.lead()
    await scene.lock.step_down()
    assert (scene.server.holder, scene.lock.state) == (None, LockState.FOLLOWER)
    await scene.reach("acquired")
    assert scene.heard[:3] == ["leader>releasing", "releasing>follower", "released"]
    await scene.lock.shutdown()


@virtual
async def test_a_step_down_beside_another_does_not_wait_beyond_its_own_timeout() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.hanging = {"unlock"}
    first = asyncio.ensure_future(scene.lock.step_down())
    await scene.reach("leader>releasing")
    began_s = asyncio.get_running_loop().time()
    await scene.lock.step_down(0.5)
    assert asyncio.get_running_loop().time() - began_s < 0.6
    assert not first.done()
    await first
    await scene.lock.shutdown()


@pytest.mark.fault("shutdown", "lock")
@virtual
async def test_a_shutdown_that_takes_too_long_says_so_and_holds_nothing() -> None:
    scene = Scene()
    await scene.lead()

    async def hang() -> None:
        await asyncio.Event().wait()

    scene.server.hanging = {"unlock"}
    scene.lock.sessions[0].close = hang  # type: ignore[method-assign]
    await scene.lock.shutdown(timeout_s=1)
    assert isinstance(scene.errors[0], ShutdownError)
    assert (scene.heard[-1], scene.lock.is_leader) == ("stopped", False)


# What ends a leadership


@pytest.mark.parametrize("fault", ["broken", "hanging"])
def test_a_probe_that_fails_or_is_late_is_a_loss(fault: str) -> None:
    @virtual
    async def run() -> None:
        scene = Scene()
        await scene.lead()
        setattr(scene.server, fault, {"probe"})
        await scene.reach("lost")
        assert scene.heard[:2] == ["leader>follower", "lost"]
        assert not scene.lock.is_leader
        assert (scene.server.holder, scene.open_sessions) == (None, 0)
        await scene.lock.shutdown()

    run()


@virtual
async def test_a_session_that_lives_but_has_lost_the_lock_leads_no_longer() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.holder = "another"
    await scene.reach("error")
    assert "no longer holds" in str(scene.errors[0])
    assert scene.heard[:2] == ["leader>follower", "lost"]
    await scene.lock.shutdown()


@pytest.mark.parametrize(("interval_s", "trust_s"), [(1, 4.75), (5, 24.0), (10, 24.0)])
def test_a_proof_counts_for_a_time_only_and_that_ends_without_a_turn_of_the_loop(
    interval_s: float, trust_s: float
) -> None:
    @virtual
    async def run() -> None:
        scene = Scene(health_interval_s=interval_s)
        await scene.lead()
        scene.clock.skipped_s = trust_s - 0.1
        assert scene.lock.is_leader
        scene.clock.skipped_s = trust_s + 0.1
        assert not scene.lock.is_leader
        assert scene.lock.state is LockState.LEADER  # nobody had the time to find out yet
        await scene.reach("lost")
        assert "too late" in str(scene.errors[0])
        await scene.lock.shutdown()

    run()


@virtual
async def test_each_good_probe_counts_from_when_it_was_sent() -> None:
    scene = Scene()
    await scene.lead()
    await scene.server.was_asked("probe", times=3)
    await asyncio.sleep(0.01)
    scene.clock.skipped_s = 4.7
    assert scene.lock.is_leader
    scene.clock.skipped_s = 4.8
    assert not scene.lock.is_leader
    await scene.lock.shutdown()


@virtual
async def test_a_lock_that_was_granted_unheard_is_undone_with_its_session() -> None:
    scene = Scene()
    scene.server.mute = {"lock"}
    await scene.lock.start()
    await scene.reach("error")
    assert isinstance(scene.errors[0], LostConnection)
    assert (scene.server.holder, scene.open_sessions) == (None, 0)
    scene.server.mute = set()
    await scene.reach("acquired")
    assert scene.server.count("connect") == 2
    await scene.lock.shutdown()


@pytest.mark.parametrize("options", [{}, {"fencing_name": "billing"}])
def test_no_term_begins_on_a_lock_whose_grant_came_too_late(options: dict[str, str]) -> None:
    @virtual
    async def run() -> None:
        scene = Scene(**options)
        await scene.lock.start()
        await scene.server.was_asked("probe" if options else "lock", times=1)
        scene.clock.skipped_s = 5  # frozen until now: the answer is handled only when another may have the lock
        await scene.reach("error")
        assert "too late" in str(scene.errors[0])
        assert "acquired" not in scene.heard
        assert (scene.server.holder, scene.open_sessions) == (None, 0)
        await scene.reach("acquired")
        await scene.lock.shutdown()

    run()


def test_what_no_retry_can_mend_stops_the_lock_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        scene = Scene()

        async def refused() -> None:
            raise PoolerError("the pool is on")

        scene.lock._open = refused  # type: ignore[method-assign]
        await scene.lock.start()
        assert (await scene.end())[-2:] == ["follower>stopped", "stopped"]
        assert [str(error) for error in scene.errors] == ["the pool is on"]

    run()
    [said] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert said.getMessage().startswith('gave_up error="the pool is on"')


def test_log_lines_name_the_lock(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        scene = Scene()
        await scene.lead()
        await scene.lock.shutdown()

    with caplog.at_level(logging.INFO, "mssqlleaderlock"):
        run()
    assert "lock_acquired attempt=1 name=billing" in [record.getMessage() for record in caplog.records]
