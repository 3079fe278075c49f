"""Stepping down, and what becomes of the lease: given back, confirmed or not, or left to lapse."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import Uncertain
from fencehold.runtime.election.election import HEAD_START_S
from tests.fencehold.runtime.election.election_parts import Town, listened
from tests.fencehold.testing.simulation.on_virtual_time import virtual


@virtual
async def test_step_down_yields_to_another_and_the_old_leader_follows() -> None:
    town = Town()
    first, second = await town.candidate("a"), await town.candidate("b")
    heard = listened(first)
    await first.start()
    assert await first.wait_for_leadership(1)
    await second.start()
    await first.step_down()
    assert await second.wait_for_leadership(1)
    await asyncio.sleep(60)
    assert not first.is_leader
    assert heard[-1] != "stopped"
    assert "released" in heard


@pytest.mark.parametrize("verb", ["step_down", "shutdown"])
def test_a_release_that_the_store_does_not_confirm_is_told_as_lost_not_released(verb: str) -> None:
    @virtual
    async def run() -> None:
        town = Town()
        leader = await town.candidate("a")
        errors: list[Exception] = []
        leader.on_error(errors.append)
        await leader.start()
        assert await leader.wait_for_leadership(1)
        heard = listened(leader)
        town.down = True
        await getattr(leader, verb)()
        after = {"step_down": ["releasing>follower", "lost", "error"]}
        assert heard == ["leader>releasing", *after.get(verb, ["releasing>stopped", "lost", "error", "stopped"])]
        assert isinstance(errors[0], Uncertain)
        assert not town.is_free
        await leader.shutdown()

    run()


@virtual
async def test_a_lease_that_is_left_to_lapse_on_purpose_is_told_as_released() -> None:
    leader = await Town().candidate("a", settings=leader_settings(lease=9, release_on_stop=False))
    heard = listened(leader)
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await leader.shutdown()
    assert heard[-3:] == ["releasing>stopped", "released", "stopped"]


@virtual
async def test_step_down_with_nobody_else_leads_again_after_giving_others_a_head_start() -> None:
    leader = await Town().candidate("a")
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await leader.step_down()
    assert not leader.is_leader
    assert not await leader.wait_for_leadership(HEAD_START_S - 0.1)
    assert await leader.wait_for_leadership(1)


@virtual
async def test_one_that_stepped_down_takes_the_lease_back_when_it_comes_free_again() -> None:
    town = Town()
    first, second = await town.candidate("a"), await town.candidate("b")
    await first.start()
    assert await first.wait_for_leadership(1)
    await second.start()
    await first.step_down()
    assert await second.wait_for_leadership(1)
    await asyncio.sleep(HEAD_START_S)
    await second.shutdown()
    assert await first.wait_for_leadership(0.5)


@virtual
async def test_step_down_past_its_timeout_still_frees_the_row_only_after_the_body_left() -> None:
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
    await leader.step_down(timeout_s=0)
    assert not leader.is_leader
    await asyncio.sleep(2)
    assert free_at_the_end == [False]
    assert town.is_free
    working.cancel()


@virtual
async def test_a_cancelled_lifecycle_leaves_the_row_to_lapse_under_a_running_body() -> None:
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
    assert leader._task is not None
    leader._task.cancel()
    await working
    assert free_at_the_end == [False]


@virtual
async def test_step_down_of_a_follower_does_nothing() -> None:
    town = Town()
    first, second = await town.candidate("a"), await town.candidate("b")
    await first.start()
    assert await first.wait_for_leadership(1)
    await second.start()
    await second.step_down()
    assert first.is_leader
