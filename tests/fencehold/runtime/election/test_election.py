"""The lifecycle of a candidate: its callbacks, how it starts and stops, and how others wait for it."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.election import LockState
from tests.fencehold.runtime.election.election_parts import Town, listened
from tests.fencehold.testing.simulation.on_virtual_time import virtual

# Callbacks


@virtual
async def test_callbacks_come_in_the_order_of_the_transitions() -> None:
    leader = await Town().candidate("a")
    heard = listened(leader)
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await leader.shutdown()
    assert heard == [
        "stopped>follower", "follower>acquiring", "acquiring>leader", "acquired",
        "leader>releasing", "releasing>stopped", "released", "stopped",
    ]  # fmt: skip


@pytest.mark.fault("callbacks", "leader", "any")
@virtual
async def test_a_callback_that_raises_goes_to_on_error_and_no_further() -> None:
    leader = await Town().candidate("a")
    errors: list[Exception] = []
    leader.on_error(errors.append)

    @leader.on_acquired
    def broken() -> None:
        raise ValueError("mine")

    heard = listened(leader)
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await asyncio.sleep(20)
    assert leader.is_leader
    assert [str(error) for error in errors] == ["mine"]
    assert "acquired" in heard


@pytest.mark.fault("callbacks", "leader", "any")
@virtual
async def test_a_callback_that_hangs_stops_neither_renewals_nor_later_callbacks() -> None:
    leader = await Town().candidate("a")

    @leader.on_acquired
    async def hangs() -> None:
        await asyncio.Event().wait()

    heard = listened(leader)
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await asyncio.sleep(60)
    assert leader.is_leader
    assert heard[-2:] == ["acquired", "error"] or heard[-2:] == ["error", "acquired"]


@virtual
async def test_an_async_on_error_is_awaited_for_a_broken_callback_too() -> None:
    leader = await Town().candidate("a")
    errors: list[Exception] = []

    @leader.on_error
    async def note(error: Exception) -> None:
        await asyncio.sleep(0)
        errors.append(error)

    @leader.on_acquired
    def broken() -> None:
        raise ValueError("mine")

    await leader.start()
    await asyncio.sleep(1)
    await leader.shutdown()
    assert [str(error) for error in errors] == ["mine"]


# Start and stop


@virtual
async def test_start_twice_at_once_and_again_gives_one_lifecycle() -> None:
    town = Town()
    leader = await town.candidate("a")
    heard = listened(leader)
    await asyncio.gather(leader.start(), leader.start())
    await leader.start()
    await asyncio.sleep(10)
    assert heard.count("stopped>follower") == 1
    await leader.shutdown()
    assert town.is_free


@virtual
async def test_a_shutdown_during_start_is_not_overtaken_by_it() -> None:
    town = Town()
    leader = await town.candidate("a")
    starting = asyncio.ensure_future(leader.start())
    await asyncio.sleep(0)
    await leader.shutdown()
    await starting
    await asyncio.sleep(20)
    assert leader.state is LockState.STOPPED
    assert town.is_free


@virtual
async def test_shutdown_twice_and_before_start_is_harmless() -> None:
    leader = await Town().candidate("a")
    await leader.shutdown()
    await leader.start()
    await leader.wait_for_leadership(1)
    await asyncio.gather(leader.shutdown(), leader.shutdown())
    await leader.shutdown()
    assert leader.state is LockState.STOPPED


@virtual
async def test_a_stopped_leader_can_start_again_and_has_a_higher_epoch() -> None:
    leader = await Town().candidate("a")
    epochs = []
    for _ in range(2):
        await leader.start()
        assert await leader.wait_for_leadership(1)
        assert leader.term is not None
        epochs.append(leader.term.epoch)
        await leader.shutdown()
    assert epochs == [1, 2]


@virtual
async def test_a_grant_that_arrives_after_a_stop_is_given_back() -> None:
    town = Town()
    town.delay_s = 1.0
    leader = await town.candidate("a")
    starting = asyncio.create_task(leader.start())
    await asyncio.sleep(0.5)
    assert leader.state is LockState.ACQUIRING
    await leader.shutdown()
    await starting
    await asyncio.sleep(1)
    assert "one" in town.shelf.rows
    assert town.is_free


@virtual
async def test_shutdown_gives_the_lease_back_and_the_next_leads_at_once() -> None:
    town = Town()
    first, second = await town.candidate("a"), await town.candidate("b")
    await first.start()
    assert await first.wait_for_leadership(1)
    await second.start()
    assert not await second.wait_for_leadership(20)
    await first.shutdown()
    assert await second.wait_for_leadership(0.1)


@virtual
async def test_shutdown_waits_for_the_body_before_the_row_is_free() -> None:
    town = Town()
    leader = await town.candidate("a")
    free_at_the_end: list[bool] = []

    async def work() -> None:
        async for term in leader.terms():
            async with term:
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(1.0)
                    free_at_the_end.append(town.is_free)

    await leader.start()
    working = asyncio.ensure_future(work())
    await asyncio.sleep(1)
    await leader.shutdown()
    await working
    assert free_at_the_end == [False]
    assert town.is_free


@virtual
async def test_shutdown_ends_at_its_timeout_although_the_body_does_not() -> None:
    town = Town()
    leader = await town.candidate("a")

    async def work() -> None:
        async for term in leader.terms():
            async with term:
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(100)

    await leader.start()
    working = asyncio.ensure_future(work())
    await asyncio.sleep(1)
    began_s = asyncio.get_running_loop().time()
    await leader.shutdown(timeout_s=2.0)
    assert asyncio.get_running_loop().time() - began_s <= 2.0 + 2.0
    assert leader.state is LockState.STOPPED
    assert not town.is_free, "the row lapses by itself: a body is still running"
    working.cancel()


@virtual
async def test_a_cancelled_lifecycle_ends_the_term_and_wakes_whoever_waits() -> None:
    town = Town()
    leader, other = await town.candidate("a"), await town.candidate("b")
    await leader.start()
    await other.start()
    assert await leader.wait_for_leadership(1)
    term = leader.term
    assert term is not None
    waiting = asyncio.ensure_future(other.wait_for_leadership())
    assert leader._task is not None
    leader._task.cancel()
    await asyncio.sleep(0.1)
    assert not term.is_valid
    assert leader.state is LockState.STOPPED
    assert await asyncio.wait_for(waiting, 20)


# Waiting


@virtual
async def test_waiting_for_leadership_ends_with_false_on_timeout() -> None:
    town = Town()
    first, second = await town.candidate("a"), await town.candidate("b")
    await first.start()
    assert await first.wait_for_leadership(1)
    await second.start()
    assert not await second.wait_for_leadership(5)


@virtual
async def test_waiting_for_leadership_ends_with_false_on_a_stop() -> None:
    town = Town()
    first, second = await town.candidate("a"), await town.candidate("b")
    await first.start()
    assert await first.wait_for_leadership(1)
    await second.start()
    waiting = asyncio.ensure_future(second.wait_for_leadership())
    await asyncio.sleep(1)
    await second.shutdown()
    assert await asyncio.wait_for(waiting, 1) is False


@virtual
async def test_terms_ends_when_the_leader_is_shut_down() -> None:
    leader = await Town().candidate("a")
    epochs: list[int] = []

    async def work() -> None:
        epochs.extend([term.epoch async for term in leader.terms()])

    await leader.start()
    working = asyncio.ensure_future(work())
    await asyncio.sleep(1)
    await leader.step_down()
    await asyncio.sleep(10)
    await leader.shutdown()
    await asyncio.wait_for(working, 1)
    assert epochs == [1, 2]
