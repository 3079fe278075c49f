"""A lifecycle that is cut off tells its end like any other, on a lock of pgleaderlock and on `store.leader` alike."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.election import LockState
from tests.fencehold.runtime.election.faces import (
    Face,
    Leased,
    end_all_tasks,
    leased,
    noting_end,
    now_s,
    on_both,
    until,
)
from tests.fencehold.testing.simulation.on_virtual_time import virtual


async def led(face: Face) -> list[str]:
    """What is told from the moment on at which it leads."""
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    return noting_end(face.lock)


@pytest.mark.fault("shutdown", "leader", "any")
@on_both
async def test_a_shutdown_whose_release_hangs_tells_the_loss_and_the_stop_before_it_returns(face: Face) -> None:
    told = await led(face)
    face.release_hangs()
    await face.lock.shutdown(timeout_s=0.5)
    assert [word for word in told if word != "error"] == ["leader>releasing", "releasing>stopped", "lost", "stopped"]
    assert told.count("error") == 1
    assert face.lock.state is LockState.STOPPED


@on_both
async def test_a_lifecycle_cancelled_while_it_releases_tells_the_loss(face: Face) -> None:
    told = await led(face)
    face.release_hangs()
    stopping = asyncio.ensure_future(face.lock.shutdown())
    await until(lambda: face.lock.state is LockState.RELEASING)
    await end_all_tasks()
    assert stopping.cancelled()
    assert told == ["leader>releasing", "releasing>stopped", "lost", "stopped"]


@on_both
async def test_a_leader_cancelled_with_its_event_loop_tells_the_loss_when_it_is_no_longer_leader(face: Face) -> None:
    told = await led(face)
    leads: list[bool] = []
    term = face.lock.term
    face.lock.on_lost(lambda: leads.append(face.lock.is_leader or (term is not None and term.is_valid)))
    await end_all_tasks()
    assert told == ["leader>stopped", "lost", "stopped"]
    assert leads == [False]


@on_both
async def test_a_leader_cancelled_while_on_acquired_runs_tells_the_loss_after_it(face: Face) -> None:
    told: list[str] = []

    @face.lock.on_acquired
    async def slow() -> None:
        told.append("acquired")
        try:
            await asyncio.sleep(9)
        finally:
            told.append("cut short")

    face.lock.on_acquired(lambda: told.append("the next"))
    face.lock.on_lost(lambda: told.append("lost"))
    face.lock.on_stopped(lambda: told.append("stopped"))
    await face.lock.start()
    await until(lambda: told)
    await end_all_tasks()
    assert told == ["acquired", "cut short", "the next", "lost", "stopped"]


@on_both
async def test_a_follower_that_is_cancelled_tells_the_stop_and_no_loss(face: Face) -> None:
    await led(face)
    face.lose_to_another()
    await until(lambda: face.lock.state is LockState.FOLLOWER)
    await face.lock._callbacks.delivered()
    told = noting_end(face.lock)
    await end_all_tasks()
    assert told == ["follower>stopped", "stopped"]


@on_both
async def test_callbacks_of_a_cancelled_lifecycle_have_two_seconds_and_leave_no_task(face: Face) -> None:
    await led(face)

    @face.lock.on_lost
    async def hangs() -> None:
        await asyncio.Event().wait()

    began_s = now_s()
    await end_all_tasks()
    await asyncio.sleep(0)
    assert now_s() - began_s == pytest.approx(2, abs=0.1)
    assert face.facts("callback_failed")
    assert [task for task in asyncio.all_tasks() if task.get_name() == "fencehold-callbacks"] == []


@on_both
async def test_on_stopped_may_start_the_leader_again_after_it_was_cut_off(face: Face) -> None:
    told = await led(face)

    @face.lock.on_stopped
    async def again() -> None:
        if told.count("stopped") == 1:
            await face.lock.start()
            await asyncio.sleep(4)
            told.append("done")

    assert face.lock._task is not None
    face.lock._task.cancel()
    await asyncio.sleep(7)
    assert "done" in told
    assert face.lock.is_leader


@virtual
async def test_a_leader_stopped_at_once_tells_it() -> None:
    face: Leased = await leased()
    told = await led(face)
    face.lock._stop_at_once()
    await until(lambda: "stopped" in told)
    assert told == ["leader>stopped", "lost", "stopped"]


@on_both
async def test_a_lifecycle_that_breaks_tells_the_error_before_it_stops(face: Face) -> None:
    told = await led(face)
    assert face.lock._election is not None

    async def breaks() -> None:
        raise RuntimeError("a fault of the library itself")

    face.lock._election._release = breaks  # type: ignore[method-assign, assignment]
    await face.lock.step_down()
    assert told == ["leader>releasing", "error", "releasing>stopped", "lost", "stopped"]
