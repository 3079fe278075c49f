"""When a caller hears of a term: after its callbacks, on a lock of pgleaderlock and on `store.leader` alike."""

from __future__ import annotations

import asyncio
import threading

import pytest

import fencehold.sync
from fencehold.model.election.election import LockState
from fencehold.testing.simulation import virtual_loop
from tests.fencehold.runtime.election.faces import Face, Locked, Make, leased, locked, noting, now_s, on_both, until

# wait_for_leadership


@on_both
async def test_wait_for_leadership_returns_after_on_acquired_of_that_term_ran(face: Face) -> None:
    told: list[str] = []

    @face.lock.on_acquired
    async def slow() -> None:
        await asyncio.sleep(3)
        told.append("acquired")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    assert told == ["acquired"]


@on_both
async def test_a_broken_on_acquired_has_gone_to_on_error_when_wait_for_leadership_returns(face: Face) -> None:
    errors: list[Exception] = []
    face.lock.on_error(errors.append)

    @face.lock.on_acquired
    def broken() -> None:
        raise ValueError("mine")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    assert [str(error) for error in errors] == ["mine"]


@on_both
async def test_wait_for_leadership_waits_for_callbacks_until_its_timeout_and_no_more_than_ten_seconds(
    face: Face,
) -> None:
    for _ in range(3):

        @face.lock.on_acquired
        async def slow() -> None:
            await asyncio.sleep(9)

    began_s = now_s()
    await face.lock.start()
    assert await face.lock.wait_for_leadership(2)
    assert now_s() - began_s == pytest.approx(2, abs=0.1)
    assert await face.lock.wait_for_leadership()
    assert now_s() - began_s == pytest.approx(12, abs=0.1)


@on_both
async def test_wait_for_leadership_is_true_only_while_leader_and_goes_on_to_the_next_term(face: Face) -> None:
    @face.lock.on_acquired
    async def slow() -> None:
        await asyncio.sleep(3)

    await face.lock.start()
    await until(lambda: face.lock.is_leader, 1)
    face.lose_to_another()
    assert await face.lock.wait_for_leadership(20) is False
    face.may_lead_again()
    assert await face.lock.wait_for_leadership(20)
    assert face.lock.is_leader


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("make", [locked, leased])
def test_wait_for_leadership_has_waited_for_the_very_term_that_it_found(make: Make, turns: int) -> None:
    """However the end of the earlier term's callbacks and the grant of the next one fall together."""

    async def run() -> None:
        face = await make()
        told: list[str] = []
        lost = asyncio.Event()

        @face.lock.on_acquired
        async def slow() -> None:
            await asyncio.sleep(0 if lost.is_set() else 100)
            told.append("acquired")

        @face.lock.on_lost
        async def until_the_next_grant() -> None:
            lost.set()
            face.may_lead_again()
            await face.next_grant()
            for _ in range(turns):
                await asyncio.sleep(0)

        await face.lock.start()
        await until(lambda: face.lock.is_leader)
        waiting = asyncio.ensure_future(face.lock.wait_for_leadership())
        await asyncio.sleep(0)
        face.lose_to_another()
        assert await waiting
        assert told == ["acquired"]
        await face.lock.shutdown()

    virtual_loop.run(run)


@on_both
async def test_wait_for_leadership_before_start_waits_for_its_timeout(face: Face) -> None:
    began_s = now_s()
    assert await face.lock.wait_for_leadership(1.0) is False
    assert now_s() - began_s == pytest.approx(1.0, abs=0.01)


@on_both
async def test_wait_for_leadership_before_start_waits_for_the_start_too(face: Face) -> None:
    waiting = asyncio.ensure_future(face.lock.wait_for_leadership(60))
    await asyncio.sleep(1)
    await face.lock.start()
    assert await waiting is True


@on_both
async def test_wait_for_leadership_before_start_ends_with_a_shutdown(face: Face) -> None:
    waiting = asyncio.ensure_future(face.lock.wait_for_leadership())
    await asyncio.sleep(1)
    await face.lock.shutdown()
    assert await waiting is False


# step_down


@on_both
async def test_step_down_returns_after_on_released_ran(face: Face) -> None:
    told: list[str] = []

    @face.lock.on_released
    async def slow() -> None:
        await asyncio.sleep(0.5)
        told.append("released")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await face.lock.step_down()
    assert told == ["released"]
    assert face.lock.state is LockState.FOLLOWER


@on_both
async def test_step_down_waits_for_callbacks_until_its_timeout_and_the_next_term_is_unharmed(face: Face) -> None:
    @face.lock.on_released
    async def slow() -> None:
        await asyncio.sleep(9)

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    began_s = now_s()
    await face.lock.step_down(timeout_s=7)  # its next term begins meanwhile
    assert now_s() - began_s == pytest.approx(7, abs=0.01)
    assert face.lock.is_leader


@on_both
async def test_a_second_step_down_waits_for_the_release_that_is_under_way(face: Face) -> None:
    told = noting(face.lock)
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    first = asyncio.ensure_future(face.lock.step_down())
    while face.lock.state is not LockState.RELEASING:  # noqa: ASYNC110 - a matter of a few turns of the loop
        await asyncio.sleep(0)
    await face.lock.step_down()
    assert told == ["acquired", "released"]
    await first


# Inside a callback


@on_both
async def test_called_inside_a_callback_neither_waits_for_callbacks(face: Face) -> None:
    took_s: list[float] = []
    answers: list[bool] = []

    @face.lock.on_acquired
    async def calls() -> None:
        if took_s:
            return
        began_s = now_s()
        answers.append(await face.lock.wait_for_leadership())
        answers.extend(await asyncio.gather(face.lock.wait_for_leadership()))  # on a task of the callback's own
        await face.lock.step_down()
        took_s.append(now_s() - began_s)

    told = noting(face.lock)
    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    assert answers == [True, True]
    assert took_s[0] < 0.5
    assert told == ["acquired", "released", "acquired"]


@on_both
async def test_a_shutdown_inside_a_callback_does_not_wait_for_callbacks_and_all_are_told(face: Face) -> None:
    told = noting(face.lock)
    stopped = asyncio.Event()
    took_s: list[float] = []

    @face.lock.on_acquired
    async def ends() -> None:
        began_s = now_s()
        await face.lock.shutdown()
        took_s.append(now_s() - began_s)

    face.lock.on_stopped(stopped.set)
    await face.lock.start()
    await stopped.wait()
    assert took_s[0] < 0.5
    assert told == ["acquired", "released"]


@on_both
async def test_work_that_a_callback_started_waits_like_any_other_caller(face: Face) -> None:
    told: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def hand_over() -> None:
        await asyncio.sleep(1)
        await face.lock.step_down()
        told.append("handed over")

    @face.lock.on_acquired
    def begin() -> None:
        if not tasks:
            tasks.append(asyncio.create_task(hand_over()))

    @face.lock.on_released
    async def slow() -> None:
        await asyncio.sleep(0.5)
        told.append("released")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await tasks[0]
    assert told == ["released", "handed over"]


@on_both
async def test_a_callback_waits_for_the_callbacks_of_another_leader(face: Face) -> None:
    other = Locked().lock
    told: list[str] = []

    @other.on_acquired
    async def slow() -> None:
        await asyncio.sleep(1)
        told.append("the other's")

    @face.lock.on_acquired
    async def calls() -> None:
        await other.start()
        assert await other.wait_for_leadership()
        told.append("mine")

    await face.lock.start()
    assert await face.lock.wait_for_leadership()
    await other.shutdown()
    assert told == ["the other's", "mine"]


def test_a_sync_callback_that_calls_the_leader_does_not_wait_for_itself(sqlite_url: str) -> None:
    with fencehold.sync.connect(sqlite_url) as store:
        store.init()
        leader = store.leader("x", lease="60s")
        answers: list[bool] = []
        errors: list[Exception] = []
        done = threading.Event()

        def calls() -> None:
            answers.append(leader.wait_for_leadership())
            done.set()

        leader.on_acquired(calls)
        leader.on_error(errors.append)
        with leader:
            assert done.wait(8)  # it would be cut off after 10
        assert (answers, errors) == ([True], [])
