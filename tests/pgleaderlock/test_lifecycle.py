"""Starting, stopping and stepping down at every moment, and how attempts are paced; on virtual time."""

import asyncio
import gc
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from pgleaderlock import ExponentialBackoff, FixedInterval, LeaderLock, LockState, RetryContext, ShutdownError
from tests.fencehold.runtime.election.faces import until
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.pgleaderlock.fake_server import FakeServer, Scene


class Noted:
    """A strategy that remembers what it was asked."""

    def __init__(self, answer: Callable[[RetryContext], float | None]) -> None:
        self.asked: list[RetryContext] = []
        self._answer = answer

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        self.asked.append(ctx)
        return self._answer(ctx)


# Starting and stopping


@virtual
async def test_start_twice_starts_once() -> None:
    scene = Scene()
    await asyncio.gather(scene.lock.start(), scene.lock.start())
    await scene.lead()
    await scene.lock.start()
    await scene.lock.shutdown()
    assert (scene.server.count("connect"), scene.heard.count("stopped")) == (1, 1)


@virtual
async def test_shutdown_before_start_and_twice_is_harmless() -> None:
    scene = Scene()
    await scene.lock.shutdown()
    await scene.lead()
    await asyncio.gather(scene.lock.shutdown(), scene.lock.shutdown())
    await scene.lock.shutdown()
    assert scene.heard.count("stopped") == 1
    assert scene.lock.state is LockState.STOPPED


@virtual
async def test_a_stopped_lock_starts_again() -> None:
    scene = Scene()
    async with scene.lock:
        assert await scene.lock.wait_for_leadership(10)
    assert scene.lock.state is LockState.STOPPED
    async with scene.lock:
        assert await scene.lock.wait_for_leadership(10)
    assert scene.heard.count("acquired") == 2


@virtual
async def test_a_cancelled_shutdown_still_stops() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.hanging = {"unlock"}
    asked = asyncio.create_task(scene.lock.shutdown())
    await scene.reach("leader>releasing")
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert "releasing>stopped" not in scene.heard
    await scene.lock.shutdown()
    assert (scene.server.holder, scene.server.open_connections) == (None, 0)
    assert scene.heard.count("stopped") == 1


@virtual
async def test_an_unlock_that_hangs_is_cut_off_within_the_time_given_to_shutdown() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.hanging = {"unlock"}
    began_s = asyncio.get_running_loop().time()
    await scene.lock.shutdown(timeout_s=2)
    assert asyncio.get_running_loop().time() - began_s < 2
    assert scene.heard == ["leader>releasing", "releasing>stopped", "lost", "error", "stopped"]
    assert "no answer within 1.6 s" in str(scene.errors[0])
    assert (scene.server.holder, scene.server.open_connections) == (None, 0)


@virtual
async def test_a_shutdown_that_takes_too_long_drops_the_connection_and_says_so() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.hanging = {"unlock", "close"}
    await scene.lock.shutdown(timeout_s=1)
    assert isinstance(scene.errors[0], ShutdownError)
    assert scene.heard[-1] == "stopped"
    assert (scene.lock.state, scene.server.holder, scene.server.open_connections) == (LockState.STOPPED, None, 0)


@virtual
async def test_a_cancelled_lifecycle_holds_nothing_and_tells() -> None:
    scene = Scene()
    await scene.lead()
    assert scene.lock._task is not None
    scene.lock._task.cancel()
    assert await scene.end() == ["leader>stopped", "lost", "stopped"]
    assert not scene.lock.is_leader
    assert (scene.server.holder, scene.server.open_connections) == (None, 0)


@virtual
async def test_the_event_from_outside_is_noticed_during_backoff() -> None:
    event = asyncio.Event()
    scene = Scene(shutdown_event=event, retry_strategy=FixedInterval(3600))
    scene.server.holder = "another"
    await scene.lock.start()
    await scene.reach("acquire_failed")
    asked_s = asyncio.get_running_loop().time()
    event.set()
    await scene.reach("stopped")
    assert asyncio.get_running_loop().time() - asked_s < 0.1
    await scene.lock.shutdown()


@virtual
async def test_the_event_from_outside_makes_a_leader_release() -> None:
    event = asyncio.Event()
    scene = Scene(shutdown_event=event)
    await scene.lead()
    event.set()
    assert await scene.end() == ["leader>releasing", "releasing>stopped", "released", "stopped"]


@virtual
async def test_leaving_the_block_by_an_error_releases_too() -> None:
    scene = Scene()
    with suppress(ZeroDivisionError):
        async with scene.lock:
            await scene.lock.wait_for_leadership()
            raise ZeroDivisionError
    assert (scene.lock.state, scene.server.holder) == (LockState.STOPPED, None)


@pytest.mark.fault("fork", "lock")
@virtual
async def test_a_forked_child_does_not_lead() -> None:
    scene = Scene()
    await scene.lead()
    child = os.fork()
    if child == 0:
        os._exit(int(scene.lock.is_leader))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert scene.lock.is_leader
    await scene.lock.shutdown()


def test_a_lock_may_be_used_in_one_event_loop_after_another() -> None:
    lock = LeaderLock("", 1, 100, connect_fn=lambda: FakeServer().connect())
    led: list[bool] = []

    @lock.on_acquired
    async def slow() -> None:
        await asyncio.sleep(0)

    @virtual
    async def once() -> None:
        async with lock:
            led.append(await lock.wait_for_leadership(10))

    once()
    once()
    assert led == [True, True]


def test_a_program_that_ends_without_a_shutdown_is_told_and_leaves_no_task(caplog: pytest.LogCaptureFixture) -> None:
    lock = LeaderLock("", 1, 100, connect_fn=lambda: FakeServer().connect())
    told: list[str] = []

    @lock.on_lost
    async def slow() -> None:
        await asyncio.sleep(0.05)
        told.append("lost")

    lock.on_stopped(lambda: told.append("stopped"))

    async def main() -> None:
        await lock.start()
        assert await lock.wait_for_leadership(10)

    asyncio.run(main())
    gc.collect()  # a task that was left behind would say so now
    assert told == ["lost", "stopped"]
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


# Stepping down


@virtual
async def test_stepping_down_when_stopped_following_or_acquiring_does_nothing() -> None:
    scene = Scene()
    await scene.lock.step_down()
    scene.server.hanging = {"lock"}
    await scene.lock.start()
    await scene.reach("follower>acquiring")
    await scene.lock.step_down()
    assert scene.lock.state is LockState.ACQUIRING
    scene.server.hanging.clear()
    scene.server.holder = "another"
    await scene.reach("acquire_failed")
    await scene.lock.step_down()
    scene.server.holder = None
    await scene.reach("acquired")  # what was asked of a follower is not held against the leader
    assert "released" not in scene.heard
    await scene.lock.shutdown()
    await scene.lock.step_down()


@virtual
async def test_stepping_down_within_the_grace_does_nothing() -> None:
    scene = Scene(reconnect_grace_s=20)
    await scene.lead()
    scene.server.broken = {"probe", "connect"}
    await scene.reach("leader>reconnecting")
    await scene.lock.step_down()
    assert scene.lock.state is LockState.RECONNECTING
    await scene.lock.shutdown()


@virtual
async def test_stepping_down_again_waits_for_the_same_release() -> None:
    scene = Scene()
    await scene.lead()
    await asyncio.gather(scene.lock.step_down(), scene.lock.step_down())
    assert scene.lock.state is LockState.FOLLOWER
    assert scene.server.count("unlock") == 1
    await scene.reach("acquired")
    scene.server.hanging = {"unlock"}
    first = asyncio.create_task(scene.lock.step_down(timeout_s=3))
    await scene.reach("leader>releasing", times=2)
    await scene.lock.step_down()
    assert scene.lock.state is LockState.FOLLOWER
    await first
    await scene.lock.shutdown()


@virtual
async def test_past_its_timeout_a_step_down_cycles_the_connection_and_follows_on() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.hanging = {"unlock"}
    await scene.lock.step_down(timeout_s=2)
    assert scene.lock.state is LockState.FOLLOWER
    assert scene.heard == ["leader>releasing", "releasing>follower", "lost", "error"]
    assert (scene.server.holder, scene.server.open_connections) == (None, 0)
    scene.server.hanging.clear()
    await scene.reach("acquired")
    assert scene.server.count("connect") == 2
    await scene.lock.shutdown()


@virtual
async def test_a_step_down_while_a_broken_connection_is_being_closed_says_lost() -> None:
    scene = Scene()
    await scene.lead()
    scene.server.broken, scene.server.hanging = {"probe"}, {"close"}
    await until(lambda: scene.server.connections[0].closed)
    assert scene.lock.state is LockState.LEADER  # it is the first to know, and busy closing
    assert not scene.lock.is_leader
    await scene.lock.step_down()
    assert scene.heard == ["leader>releasing", "releasing>follower", "lost", "error"]
    scene.server.hanging = set()
    await scene.lock.shutdown()


@virtual
async def test_a_step_down_during_a_probe_keeps_the_connection() -> None:
    scene = Scene()
    await scene.lead()
    await scene.server.was_asked("probe", times=3)
    await scene.lock.step_down()
    assert scene.lock.state is LockState.FOLLOWER
    assert (scene.server.count("connect"), scene.server.open_connections) == (1, 1)
    await scene.lock.shutdown()


# Waiting


@virtual
async def test_waiting_ends_with_false_on_timeout_and_when_stopped() -> None:
    scene = Scene()
    assert await scene.lock.wait_for_leadership(0.1) is False
    scene.server.holder = "another"
    await scene.lock.start()
    assert await scene.lock.wait_for_leadership(0.1) is False
    waiting = asyncio.create_task(scene.lock.wait_for_leadership())
    await asyncio.sleep(1)
    await scene.lock.shutdown()
    assert await waiting is False
    assert await scene.lock.wait_for_leadership() is False


# The pace of attempts


@virtual
async def test_a_strategy_that_gives_up_stops_the_lock() -> None:
    scene = Scene(retry_strategy=Noted(lambda ctx: 1.0 if ctx.attempt < 3 else None))
    scene.server.holder = "another"
    await scene.lock.start()
    assert (await scene.end())[-2:] == ["follower>stopped", "stopped"]
    assert scene.server.count("lock") == 3
    assert await scene.lock.wait_for_leadership() is False


@virtual
async def test_a_lock_that_stops_by_itself_leaves_no_pending_task() -> None:
    scene = Scene(retry_strategy=Noted(lambda ctx: None), shutdown_event=asyncio.Event())
    scene.server.holder = "another"
    await scene.lock.start()
    await scene.reach("stopped")
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # nobody shuts it down
    assert scene.lock.state is LockState.STOPPED


@virtual
async def test_attempts_are_counted_from_one_again_after_success() -> None:
    strategy = Noted(lambda ctx: 1.0)
    scene = Scene(retry_strategy=strategy)
    scene.server.broken = {"lock"}
    await scene.lock.start()
    await scene.reach("error", times=3)
    scene.server.broken.clear()
    await scene.reach("acquired")
    assert [ctx.attempt for ctx in strategy.asked] == [1, 2, 3]
    assert [round(ctx.elapsed_s) for ctx in strategy.asked] == [0, 1, 2]
    assert "lock broke" in str(strategy.asked[0].last_error)
    scene.server.broken = {"probe", "lock"}
    await scene.reach("error", times=6)
    assert [ctx.attempt for ctx in strategy.asked[3:]][:2] == [1, 2]
    await scene.lock.shutdown()


@virtual
async def test_attempt_5000_and_beyond_is_as_good_as_the_first() -> None:
    strategy = Noted(ExponentialBackoff(base_s=0.1, max_s=1.0).next_delay_s)
    scene = Scene(retry_strategy=strategy)
    scene.lock.on_acquire_failed(lambda: None)
    scene.server.holder = "another"
    await scene.lock.start()
    await scene.server.was_asked("lock", times=5100)
    assert strategy.asked[-1].attempt > 5000
    scene.server.holder = None
    assert await scene.lock.wait_for_leadership(10)
    await scene.lock.shutdown()


@virtual
async def test_an_error_that_persists_is_no_reason_to_hurry() -> None:
    scene = Scene(retry_strategy=ExponentialBackoff(base_s=1.0, max_s=30.0))
    scene.server.broken = {"lock"}
    await scene.lock.start()
    await asyncio.sleep(60)
    assert scene.server.count("connect") <= 7
    await scene.lock.shutdown()


@virtual
async def test_a_lock_that_is_lost_after_every_grant_does_not_hurry_either() -> None:
    scene = Scene()
    scene.server.broken = {"probe"}
    await scene.lock.start()
    await asyncio.sleep(60)
    assert scene.server.count("connect") <= 61  # once in each health interval
    await scene.lock.shutdown()


@virtual
async def test_a_strategy_that_raises_ends_the_lock_and_is_told() -> None:
    def broken(ctx: RetryContext) -> float | None:
        raise ZeroDivisionError("mine")

    scene = Scene(retry_strategy=Noted(broken))
    scene.server.holder = "another"
    await scene.lock.start()
    assert (await scene.end())[-3:] == ["error", "follower>stopped", "stopped"]
    assert "mine" in str(scene.errors[0])
    assert scene.server.open_connections == 0
