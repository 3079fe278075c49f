"""A callback that takes long, and the end of its term, on a lock of pgleaderlock and on `store.leader` alike."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.election import LockState
from tests.fencehold.runtime.election.faces import Face, noting, now_s, on_both, until


@on_both
async def test_an_on_acquired_of_nine_seconds_delays_on_lost_by_one_at_most_and_comes_before_it(face: Face) -> None:
    told = noting(face.lock)
    began = asyncio.Event()
    lost_s: list[float] = []

    @face.lock.on_acquired
    async def slow() -> None:
        began.set()
        try:
            await asyncio.sleep(9)
        finally:
            told.append("slow ended")

    face.lock.on_lost(lambda: lost_s.append(now_s()))
    face.lock.on_state_change(lambda old, new: told.append("over") if old is LockState.LEADER else None)
    await face.lock.start()
    await began.wait()
    face.lose_to_another()
    await until(lambda: face.lock.state is not LockState.LEADER)
    over_s = now_s()
    await until(lambda: lost_s, 20)
    assert lost_s[0] - over_s == pytest.approx(1, abs=0.1)
    assert told[:4] == ["acquired", "slow ended", "over", "lost"]
    assert any("1 s after its term" in text for text in told)


@on_both
async def test_one_that_ignores_its_cancellation_is_abandoned_a_second_later(face: Face) -> None:
    told = noting(face.lock)
    began, ended = asyncio.Event(), asyncio.Event()

    @face.lock.on_acquired
    async def stubborn() -> None:
        began.set()
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    await face.lock.start()
    await began.wait()
    face.lose_to_another()
    await until(lambda: face.lock.state is not LockState.LEADER)
    await asyncio.sleep(2.1)
    assert "lost" in told
    assert any("abandoned" in text for text in told)
    ended.set()


@on_both
async def test_callbacks_of_a_term_that_is_over_are_all_called_and_have_one_second_together(face: Face) -> None:
    begun: list[str] = []
    lost_s: list[float] = []
    for name in "abc":

        async def slow(name: str = name) -> None:
            begun.append(name)
            await asyncio.sleep(9)

        face.lock.on_acquired(slow)
    face.lock.on_acquired(lambda: begun.append("plain"))
    face.lock.on_lost(lambda: lost_s.append(now_s()))
    await face.lock.start()
    await until(lambda: begun)
    face.lose_to_another()
    await until(lambda: face.lock.state is not LockState.LEADER)
    over_s = now_s()
    await until(lambda: lost_s, 5)
    assert lost_s[0] - over_s == pytest.approx(1, abs=0.1)
    assert begun == ["a", "b", "c", "plain"]


@on_both
async def test_an_on_lost_that_takes_long_is_not_cut_short_by_the_next_loss(face: Face) -> None:
    ended: list[str] = []

    @face.lock.on_lost
    async def slow() -> None:
        await asyncio.sleep(8)
        ended.append("on_lost")

    await face.lock.start()
    for _ in range(2):
        await until(lambda: face.lock.is_leader, 7)
        face.lose_to_another()
        await until(lambda: face.lock.state is not LockState.LEADER)
        face.may_lead_again()
    assert ended == []  # both losses came within the eight seconds of the first
    await asyncio.sleep(17)
    assert ended == ["on_lost", "on_lost"]


@on_both
async def test_a_task_that_a_callback_returns_is_neither_awaited_nor_cut_off(face: Face) -> None:
    ended: list[str] = []

    async def work() -> None:
        await asyncio.sleep(30)
        ended.append("work")

    face.lock.on_acquired(lambda: asyncio.ensure_future(work()))
    began_s = now_s()
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    assert now_s() - began_s < 1
    await asyncio.sleep(31)
    assert ended == ["work"]


@on_both
async def test_a_callback_that_is_cancelled_from_outside_stops_no_other(face: Face) -> None:
    told = noting(face.lock)

    @face.lock.on_acquired
    async def cancelled() -> None:
        raise asyncio.CancelledError

    face.lock.on_acquired(lambda: told.append("the next"))
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    assert "the next" in told
    assert any("was cancelled" in text for text in told)


@on_both
async def test_a_shutdown_cancels_callbacks_that_have_not_ended_in_its_time_and_nothing_is_told_later(
    face: Face,
) -> None:
    told: list[str] = []

    @face.lock.on_released
    async def hangs() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            told.append("cut off")

    face.lock.on_stopped(lambda: told.append("stopped"))
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    began_s = now_s()
    await face.lock.shutdown(timeout_s=4)
    assert now_s() - began_s == pytest.approx(4, abs=0.1)
    await asyncio.sleep(0.01)
    await face.lock.shutdown()  # has nothing to wait for
    assert now_s() - began_s == pytest.approx(4, abs=0.1)
    assert told == ["cut off"]
    assert len(face.facts("callback_failed")) >= 2  # on_released, and on_stopped that waited for it
    await face.lock.start()
    await asyncio.sleep(20)
    assert told == ["cut off"]


@on_both
async def test_a_callback_that_starts_the_leader_again_is_not_cut_off_by_the_shutdown_before(face: Face) -> None:
    ended: list[str] = []

    @face.lock.on_stopped
    async def again() -> None:
        if not ended:
            await face.lock.start()
            await asyncio.sleep(8)
            ended.append("again")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await face.lock.shutdown(timeout_s=4)
    await asyncio.sleep(8)
    assert ended == ["again"]
    assert face.lock.is_leader


@on_both
async def test_a_shutdown_gives_callbacks_two_seconds_however_late_it_is(face: Face) -> None:
    told: list[str] = []

    @face.lock.on_released
    async def slow() -> None:
        await asyncio.sleep(1.5)
        told.append("released")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await face.lock.shutdown(timeout_s=0.5)
    assert told == ["released"]


# What is left behind


@on_both
async def test_a_leader_at_rest_runs_no_task_for_its_callbacks(face: Face) -> None:
    noting(face.lock)
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "fencehold-callbacks"] == []
