"""When a candidate asks again: after an error, at the holder's expiry, on a hint."""

from __future__ import annotations

import asyncio

import pytest

from fencehold.model.election.election import LockState
from fencehold.model.election.retry import RetryContext
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import Unavailable
from fencehold.testing.simulation import virtual_loop
from tests.fencehold.runtime.election.election_parts import SETTINGS, Town, listened
from tests.fencehold.testing.simulation.on_virtual_time import virtual


class GivesUp:
    def __init__(self, after: int) -> None:
        self._after = after
        self.seen: list[RetryContext] = []

    def next_delay_s(self, ctx: RetryContext) -> float | None:
        self.seen.append(ctx)
        return None if ctx.attempt >= self._after else 0.5


@virtual
async def test_a_strategy_that_gives_up_stops_the_leader() -> None:
    town = Town()
    town.down = True
    strategy = GivesUp(after=3)
    leader = await town.candidate("a", retry_strategy=strategy)
    heard = listened(leader)
    await leader.start()
    assert not await leader.wait_for_leadership(10)
    assert leader.state is LockState.STOPPED
    await leader.shutdown()
    assert heard[-1] == "stopped"
    assert [ctx.attempt for ctx in strategy.seen] == [1, 2, 3]
    assert all(isinstance(ctx.last_error, Unavailable) for ctx in strategy.seen)


@virtual
async def test_an_unreachable_store_is_asked_again_and_not_in_a_storm() -> None:
    town = Town()
    town.down = True
    leader = await town.candidate("a")
    heard = listened(leader)
    await leader.start()
    await asyncio.sleep(60)
    assert 10 < heard.count("error") < 300
    assert "lost" not in heard, "nothing was held"
    town.down = False
    assert await leader.wait_for_leadership(SETTINGS.acquire_every_s + 0.1)


@virtual
async def test_a_follower_asks_at_the_holders_expiry_without_any_hint() -> None:
    town = Town()
    leader, other = await town.candidate("a"), await town.candidate("b")
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await other.start()
    town.shelf.hints.clear()
    leader._context.keeper._tasks[0].cancel()  # its keeper dies: nothing renews any more
    row = town.shelf.rows["one"]
    left_s = (row.expires_at - town.shelf.now()).total_seconds()
    assert not await other.wait_for_leadership(left_s - 0.01)
    assert await other.wait_for_leadership(0.1)


@virtual
async def test_a_false_hint_that_the_lease_is_free_makes_no_leader() -> None:
    town = Town()
    leader, other = await town.candidate("a"), await town.candidate("b")
    await leader.start()
    assert await leader.wait_for_leadership(1)
    await other.start()
    for _ in range(5):
        town.shelf.notify("released", "one")
        await asyncio.sleep(0.5)
    assert leader.is_leader
    assert not other.is_leader


@pytest.mark.parametrize("release", [True, False])
def test_a_stop_gives_the_row_back_unless_told_otherwise(release: bool) -> None:
    async def scenario() -> bool:
        town = Town()
        leader = await town.candidate("a", settings=leader_settings(lease=9, release_on_stop=release))
        await leader.start()
        assert await leader.wait_for_leadership(1)
        await leader.shutdown()
        return town.is_free

    assert virtual_loop.run(scenario) is release
