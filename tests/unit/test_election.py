"""The lifecycle of a candidate: its callbacks, its stops, and what it does with a grant that nobody wants any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.model.election import LockState
from fencehold.model.errors import Unavailable, Uncertain
from fencehold.model.leases import Ask, TermKey
from fencehold.model.retry import RetryContext
from fencehold.model.settings import leader_settings
from fencehold.ports.leases import Answer
from fencehold.runtime.election import HEAD_START_S
from fencehold.runtime.engine import Engine
from fencehold.runtime.leader import Leader
from fencehold.testing import virtual_loop
from tests.unit.on_virtual_time import LoopClock, SameLoopHost, virtual

T = TypeVar("T")

SETTINGS = leader_settings(lease=9)  # asks every 4.5 s, renews every 3 s, a call may take 1.7 s


class Facts:
    def __init__(self) -> None:
        self.told: list[str] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append(event)


class Town:
    """One store in memory and its candidates, on virtual time."""

    def __init__(self) -> None:
        self.shelf = Shelf(now_s=asyncio.get_running_loop().time)
        self.facts = Facts()
        self.delay_s = 0.0
        self.down: bool | Exception = False
        self.hanging = False

    async def candidate(self, holder_id: str, **options: Any) -> Leader:
        backend = MemoryBackend(self.shelf)
        acquire = backend.leases.acquire

        async def slow(ask: Ask, limit_s: float) -> Answer:
            if self.down:
                raise self.down if isinstance(self.down, Exception) else Unavailable("down")
            await asyncio.sleep(self.delay_s)
            return await acquire(ask, limit_s)

        release = backend.leases.release

        async def answered(keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
            if self.down:
                raise Unavailable("down")
            if self.hanging:
                await asyncio.Event().wait()
            return await release(keys, limit_s)

        backend.leases.acquire = slow  # type: ignore[method-assign]
        backend.leases.release = answered  # type: ignore[method-assign]
        engine = Engine(backend, LoopClock(), self.facts)
        await engine.open(1.0)
        settings = options.pop("settings", SETTINGS)
        options.setdefault("retry_strategy", None)
        return Leader(
            "one", holder_id, settings, engine=lambda: (engine, SameLoopHost()), clock=LoopClock(), facts=self.facts,
            enrol=lambda _: None, done=lambda: None, **options,
        )  # fmt: skip

    @property
    def is_free(self) -> bool:
        row = self.shelf.rows.get("one")
        return row is None or row.expires_at <= self.shelf.now()


def listened(leader: Leader) -> list[str]:
    """The names of the callbacks that fire, in order."""
    heard: list[str] = []
    leader.on_acquired(lambda: heard.append("acquired"))
    leader.on_released(lambda: heard.append("released"))
    leader.on_lost(lambda: heard.append("lost"))
    leader.on_acquire_failed(lambda: heard.append("acquire_failed"))
    leader.on_state_change(lambda old, new: heard.append(f"{old.value}>{new.value}"))
    leader.on_error(lambda error: heard.append("error"))
    leader.on_stopped(lambda: heard.append("stopped"))
    return heard


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


# Stepping down


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


# Retrying


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
    leader._parts()[0]._tasks[0].cancel()  # its keeper dies: nothing renews any more
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
        town.shelf.tell("released", "one")
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
