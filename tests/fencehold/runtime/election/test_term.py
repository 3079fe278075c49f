"""A term as a cancel scope: what it swallows, what it lets through, and what ends it."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.rules import Lease
from fencehold.model.errors import LeaseLost
from fencehold.testing.simulation import virtual_loop
from tests.fencehold.runtime.election.term_parts import START, a_term, for_ever, later
from tests.fencehold.testing.simulation.on_virtual_time import virtual

# The body


@virtual
async def test_the_body_is_cancelled_when_the_term_is_lost_and_the_program_goes_on() -> None:
    term, held, _ = a_term()
    later(1, held.end, "held_by_another")
    reached = False
    async with term:
        await for_ever()
        reached = True
    assert not reached
    assert asyncio.get_running_loop().time() == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1)


@virtual
async def test_the_body_of_a_term_that_is_over_does_not_run_at_all() -> None:
    term, held, _ = a_term()
    held.end("released")
    entered = False
    with pytest.raises(LeaseLost) as raised:
        async with term:
            entered = True
    assert not entered
    assert (raised.value.name, raised.value.epoch, raised.value.code) == ("one", 1, "lease_lost")
    await asyncio.sleep(1)


@virtual
async def test_the_body_of_a_term_past_its_deadline_does_not_run_at_all() -> None:
    term, held, _ = a_term()
    await asyncio.sleep(9.5)
    entered = False
    with pytest.raises(LeaseLost):
        async with term:
            entered = True
    assert not entered
    assert held.ended_because is not None


@virtual
async def test_a_block_refused_inside_a_body_of_the_same_term_ends_that_body_quietly() -> None:
    term, held, _ = a_term()
    reached = False
    async with term:
        held.end("released")
        async with term:
            reached = True
    assert not reached
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1)


@virtual
async def test_a_body_that_finishes_by_itself_is_left_in_peace_by_a_later_loss() -> None:
    term, held, _ = a_term()
    async with term:
        await asyncio.sleep(1)
    held.end("held_by_another")
    await asyncio.sleep(1)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@virtual
async def test_a_loss_in_the_very_turn_in_which_the_body_ends_leaves_no_stray_cancel() -> None:
    for _ in range(20):
        term, held, _ = a_term()
        later(1, held.end, "held_by_another")
        async with term:
            await asyncio.sleep(1)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0.1)


def test_the_same_under_many_orders_of_events() -> None:
    async def scenario() -> None:
        term, held, _ = a_term()
        later(1, held.end, "held_by_another")
        async with term:
            await asyncio.sleep(1)
        await asyncio.sleep(0.1)

    for seed in range(200):
        virtual_loop.run(scenario, seed)


@virtual
async def test_a_body_may_clean_up_with_awaits_of_its_own() -> None:
    term, held, _ = a_term()
    later(1, held.end, "held_by_another")
    cleaned = False
    async with term:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(2)
            cleaned = True
    assert cleaned
    assert asyncio.get_running_loop().time() == 3


@virtual
async def test_a_cancel_from_outside_goes_through() -> None:
    term, _, _ = a_term()

    async def body() -> None:
        async with term:
            await for_ever()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert term.is_valid


@virtual
async def test_a_cancel_from_outside_goes_through_although_the_term_is_lost_at_the_same_time() -> None:
    term, held, _ = a_term()

    async def body() -> None:
        async with term:
            await for_ever()

    task = asyncio.ensure_future(body())
    await asyncio.sleep(1)
    held.end("held_by_another")
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@virtual
async def test_a_timeout_around_the_body_is_still_a_timeout() -> None:
    term, _, _ = a_term()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), term:
            await for_ever()


@virtual
async def test_a_timeout_around_a_lost_body_is_no_timeout() -> None:
    term, held, _ = a_term()
    later(0.5, held.end, "held_by_another")
    async with asyncio.timeout(1):
        async with term:
            await for_ever()
    await asyncio.sleep(2)


@virtual
async def test_an_error_of_the_body_goes_through() -> None:
    term, held, _ = a_term()
    with pytest.raises(ValueError, match="mine"):
        async with term:
            raise ValueError("mine")
    later(0.5, held.end, "held_by_another")

    async def fails_on_the_way_out() -> None:
        try:
            await for_ever()
        finally:
            raise ValueError("on the way out")

    with pytest.raises(ValueError, match="on the way out"):
        async with term:
            await fails_on_the_way_out()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@virtual
async def test_lease_lost_of_this_term_ends_the_body_quietly_and_of_another_does_not() -> None:
    term, _, _ = a_term(epoch=2)
    async with term:
        raise LeaseLost("mine", name="one", epoch=2)
    with pytest.raises(LeaseLost, match="other"):
        async with term:
            raise LeaseLost("other", name="one", epoch=1)
    with pytest.raises(LeaseLost, match="other"):
        async with term:
            raise LeaseLost("other", name="two", epoch=2)


@virtual
async def test_nested_bodies_of_one_term_both_end_and_leave_no_cancel() -> None:
    term, held, _ = a_term()
    later(1, held.end, "held_by_another")
    async with term, term:
        await for_ever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1)


@virtual
async def test_bodies_of_several_tasks_all_end() -> None:
    term, held, _ = a_term()
    ended: list[int] = []

    async def body(number: int) -> None:
        async with term:
            await for_ever()
        ended.append(number)

    later(1, held.end, "held_by_another")
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(body(number))
    assert sorted(ended) == [0, 1, 2, 3, 4]


@virtual
async def test_waiting_for_the_bodies_ends_with_the_last_of_them_or_at_the_limit() -> None:
    term, _, _ = a_term()
    assert await term._bodies.left(0) is True

    async def body(for_s: float) -> None:
        async with term:
            await asyncio.sleep(for_s)

    bodies = [asyncio.ensure_future(body(for_s)) for for_s in (1, 3)]
    await asyncio.sleep(0)
    assert await term._bodies.left(2) is False
    assert await term._bodies.left(2) is True
    assert asyncio.get_running_loop().time() == 3
    await asyncio.gather(*bodies)


@virtual
async def test_ended_returns_when_the_term_is_over() -> None:
    term, held, _ = a_term()
    later(1, held.end, "released")
    await asyncio.wait_for(term.ended(), 1.1)


# Validity


@virtual
async def test_validity_is_a_comparison_of_clocks_and_goes_one_way() -> None:
    term, held, _ = a_term()
    assert term.remaining_s == 9
    await asyncio.sleep(8.99)
    assert term.is_valid
    await asyncio.sleep(0.01)
    assert not term.is_valid
    late = Lease("one", "me", 1, START, START, START, 10.0)
    assert held.renewed(late, sent_s=8.0) is False
    assert not term.is_valid


@virtual
async def test_check_raises_and_ends_the_term_once_it_is_invalid() -> None:
    term, held, _ = a_term()
    term.check()
    await asyncio.sleep(9.5)
    with pytest.raises(LeaseLost) as raised:
        term.check()
    assert (raised.value.name, raised.value.epoch) == ("one", 1)
    assert held.ended_because is not None
