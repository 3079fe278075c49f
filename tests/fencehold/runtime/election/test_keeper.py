"""The keeper: batches, retries, deadlines, stalls, and answers that come too late."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from fencehold.model.election.rules import Ask, Busy, Lease, Refusal, TermKey
from fencehold.model.election.settings import LeaderSettings, leader_settings
from fencehold.model.errors import Uncertain
from fencehold.ports.leases import Answer
from fencehold.runtime.core.renewals import LoopLiveness
from fencehold.runtime.election.keeper import HeldLease, Keeper
from fencehold.telemetry.logs import level_of
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock, virtual

SETTINGS = leader_settings(lease=9)  # renews every 3 s, trusts itself for 8.1 s, a call may take 1.7 s
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class Facts:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def fact(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    def count(self, event: str) -> int:
        return sum(told == event for told, _ in self.told)


class ScriptedPort:
    """Grants and renews at once, unless `renewing` says otherwise."""

    def __init__(self) -> None:
        self.renewals: list[tuple[float, list[TermKey]]] = []
        self.released: list[TermKey] = []
        self.renewing: Callable[[TermKey], Coroutine[Any, Any, Answer]] | None = None
        self.releasing_s = 0.0

    async def acquire(self, ask: Ask, limit_s: float) -> Answer:
        return lease(ask.name, ask.holder_id, 1, ask.lease_s)

    async def renew(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        self.renewals.append((asyncio.get_running_loop().time(), list(keys)))
        if self.renewing is None:
            return [lease(key.name, key.holder_id, key.epoch, key.lease_s) for key in keys]
        return [await self.renewing(key) for key in keys]

    async def release(self, keys: Sequence[TermKey], limit_s: float) -> list[Answer]:
        await asyncio.sleep(self.releasing_s)
        self.released += keys
        return [lease(key.name, key.holder_id, key.epoch, 0.0) for key in keys]

    async def read(self, names: Sequence[str], limit_s: float) -> dict[str, Lease]:
        return {}

    async def list(self, prefix: str, limit_s: float) -> list[Lease]:
        return []

    async def ask_step_down(self, name: str, epoch: int, limit_s: float) -> Answer:
        return Refusal("absent")


def lease(name: str, holder_id: str, epoch: int, remaining_s: float, asked: bool = False) -> Lease:
    until = START + dt.timedelta(seconds=remaining_s)
    return Lease(name, holder_id, epoch, START, START, until, remaining_s, asked)


class Bench:
    """A running keeper over a scripted port."""

    def __init__(self) -> None:
        self.port, self.facts, self.clock = ScriptedPort(), Facts(), LoopClock()
        self.keeper = Keeper(self.port, self.clock, self.facts)
        self.running = asyncio.ensure_future(self.keeper.run())

    async def take(
        self, name: str = "one", settings: LeaderSettings = SETTINGS, liveness: LoopLiveness | None = None
    ) -> HeldLease:
        held = await self.keeper.take(Ask(name, "me", settings.lease_s, "n"), settings, liveness)
        assert isinstance(held, HeldLease)
        return held


async def silence(key: TermKey) -> Answer:
    await asyncio.sleep(SETTINGS.call_limit_s)
    raise Uncertain("no answer")


@virtual
async def test_a_lease_is_renewed_every_interval_and_stays_valid() -> None:
    bench = Bench()
    held = await bench.take()
    await asyncio.sleep(60.5)
    assert held.is_valid
    assert [at_s for at_s, _ in bench.port.renewals] == [3.0 * turn for turn in range(1, 20 + 1)]


@virtual
async def test_a_thousand_leases_are_renewed_in_one_statement() -> None:
    bench = Bench()
    for number in range(1000):
        await bench.take(f"lease-{number}")
    await asyncio.sleep(3.5)
    assert [len(keys) for _, keys in bench.port.renewals] == [1000]


@virtual
async def test_more_than_a_batch_goes_in_several_and_none_is_forgotten() -> None:
    bench = Bench()
    for number in range(1500):
        await bench.take(f"lease-{number}")
    await asyncio.sleep(3.5)
    assert [len(keys) for _, keys in bench.port.renewals] == [1000, 500]


@virtual
async def test_leases_due_soon_go_along_with_one_that_is_due_now() -> None:
    bench = Bench()
    for number in range(4):
        await bench.take(f"lease-{number}")
        await asyncio.sleep(0.2)
    await asyncio.sleep(20)
    assert all(len(keys) == 4 for _, keys in bench.port.renewals)


@virtual
async def test_no_answer_is_retried_until_the_deadline_and_then_the_lease_is_over() -> None:
    bench = Bench()
    bench.port.renewing = silence
    held = await bench.take()
    await asyncio.sleep(8.09)
    assert held.is_valid
    assert len(bench.port.renewals) >= 2
    await asyncio.sleep(0.02)
    assert not held.is_valid
    await asyncio.sleep(2)
    assert held.ended_because == "deadline_passed"
    assert bench.facts.count("leader_renew_failed") >= 2


def lines(bench: Bench, event: str) -> list[dict[str, Any]]:
    """Of this fact, what a log shows at INFO."""
    told = (fields for one, fields in bench.facts.told if one == event)
    return [fields for fields in told if level_of(event, fields) >= logging.INFO]


async def cut_at_once(key: TermKey) -> Answer:
    raise Uncertain("cut at once")


@virtual
async def test_renewals_that_fail_ever_quicker_have_few_lines_and_the_end_counts_the_rest() -> None:
    bench = Bench()
    held = await bench.take()
    bench.port.renewing = cut_at_once
    await asyncio.sleep(8.2)
    assert not held.is_valid
    failures = bench.facts.count("leader_renew_failed")
    assert failures >= 15, "every one is counted as a metric"
    told, [lost] = lines(bench, "leader_renew_failed"), lines(bench, "leader_lost")
    assert told[0]["failures"] == 1
    assert len(told) == 2, "at once, and one for each 5 s"
    assert lost["failures"] == failures
    assert len(told) + sum(one["not_logged"] for one in [*told, lost]) == failures


@virtual
async def test_the_renewal_that_ends_failures_says_how_many_there_were() -> None:
    bench = Bench()
    await bench.take()
    bench.port.renewing = cut_at_once
    await asyncio.sleep(5)
    bench.port.renewing = None
    await asyncio.sleep(20)
    [again] = lines(bench, "leader_renewed")
    assert again["failures"] == bench.facts.count("leader_renew_failed")
    assert again["not_logged"] == again["failures"] - len(lines(bench, "leader_renew_failed"))


@virtual
async def test_retries_do_not_come_in_a_storm() -> None:
    bench = Bench()

    async def cut(key: TermKey) -> Answer:
        raise Uncertain("cut at once")

    bench.port.renewing = cut
    await bench.take()
    await asyncio.sleep(20)
    assert len(bench.port.renewals) < 50


@virtual
async def test_one_good_answer_after_several_lost_ones_keeps_the_lease() -> None:
    bench = Bench()
    bench.port.renewing = silence
    held = await bench.take()
    await asyncio.sleep(6)
    bench.port.renewing = None
    await asyncio.sleep(20)
    assert held.is_valid


@virtual
async def test_no_answer_drops_the_lease_at_once_where_that_is_asked_for() -> None:
    bench = Bench()
    bench.port.renewing = silence
    held = await bench.take(settings=leader_settings(lease=9, on_error="drop"))
    await asyncio.sleep(3 + SETTINGS.call_limit_s + 0.01)
    assert held.ended_because == "renewal_failed"


@virtual
async def test_a_refusal_ends_the_lease_at_once() -> None:
    bench = Bench()

    async def refuse(key: TermKey) -> Answer:
        return Refusal("held_by_another")

    bench.port.renewing = refuse
    held = await bench.take()
    await asyncio.sleep(3.01)
    assert held.ended_because == "held_by_another"
    assert len(bench.port.renewals) == 1
    assert bench.port.released == []


@virtual
async def test_a_busy_row_is_asked_for_again() -> None:
    bench = Bench()

    async def busy(key: TermKey) -> Answer:
        return Busy()

    bench.port.renewing = busy
    held = await bench.take()
    await asyncio.sleep(5)
    assert held.is_valid
    bench.port.renewing = None
    await asyncio.sleep(20)
    assert held.is_valid


@virtual
async def test_a_success_after_the_deadline_is_a_loss_and_the_row_is_given_back() -> None:
    bench = Bench()

    async def late(key: TermKey) -> Answer:
        await asyncio.sleep(6)  # past the limit and past the deadline, as when the process was frozen
        return lease(key.name, key.holder_id, key.epoch, key.lease_s)

    bench.port.renewing = late
    held = await bench.take()
    await asyncio.sleep(9.5)
    assert not held.is_valid
    assert [key.epoch for key in bench.port.released] == [1]


@virtual
async def test_trust_counts_from_when_the_renewal_was_sent() -> None:
    bench = Bench()

    async def slow(key: TermKey) -> Answer:
        await asyncio.sleep(1.5)
        return lease(key.name, key.holder_id, key.epoch, key.lease_s)

    bench.port.renewing = slow
    held = await bench.take()
    await asyncio.sleep(4.6)  # sent at 3, answered at 4.5
    assert held.remaining_s == 3 + 9 - SETTINGS.margin_s - 4.6


@virtual
async def test_a_grant_that_comes_too_late_is_given_back_and_not_kept() -> None:
    bench = Bench()
    grant = bench.port.acquire

    async def late(ask: Ask, limit_s: float) -> Answer:
        await asyncio.sleep(8.5)
        return await grant(ask, limit_s)

    bench.port.acquire = late  # type: ignore[method-assign]
    answer = await bench.keeper.take(Ask("one", "me", 9.0, "n"), SETTINGS, None)
    assert isinstance(answer, Refusal)
    assert answer.reason == "granted_too_late"
    assert len(bench.port.released) == 1


@virtual
async def test_a_lease_released_while_its_renewal_is_under_way_is_released_once() -> None:
    bench = Bench()

    async def slow(key: TermKey) -> Answer:
        await asyncio.sleep(1)
        return lease(key.name, key.holder_id, key.epoch, key.lease_s)

    bench.port.renewing = slow
    held = await bench.take()
    await asyncio.sleep(3.5)
    await bench.keeper.give_back(held, "released")
    await asyncio.sleep(10)
    assert held.ended_because == "released"
    assert len(bench.port.released) == 1
    assert len(bench.port.renewals) == 1


@virtual
async def test_the_row_of_a_lease_lost_before_its_deadline_is_left_to_lapse() -> None:
    """A body may still be leaving, and a row that is free invites a successor."""
    bench = Bench()

    async def slow(key: TermKey) -> Answer:
        await asyncio.sleep(1)
        return lease(key.name, key.holder_id, key.epoch, key.lease_s)

    bench.port.renewing = slow
    held = await bench.take()
    await asyncio.sleep(3.5)
    held.end("fence_refused")
    await asyncio.sleep(10)
    assert bench.port.released == []


@virtual
async def test_slow_releases_of_some_leases_do_not_cost_the_others() -> None:
    bench = Bench()
    lost = [await bench.take(f"a-{number}") for number in range(10)]
    await asyncio.sleep(0.5)
    kept = await bench.take("b")

    async def late(key: TermKey) -> Answer:
        await asyncio.sleep(8.2 - LoopClock().now_s() if key.name.startswith("a") else 0)
        return lease(key.name, key.holder_id, key.epoch, key.lease_s)

    bench.port.renewing = late
    bench.port.releasing_s = SETTINGS.call_limit_s
    await asyncio.sleep(40)
    assert not any(held.is_valid for held in lost)
    assert kept.is_valid
    assert len(bench.port.released) == 10


@pytest.mark.fault("blocked-loop", "leader", "any")
@virtual
async def test_the_lease_of_a_silent_event_loop_is_left_to_expire() -> None:
    bench = Bench()
    liveness = LoopLiveness(asyncio.get_running_loop(), bench.clock)
    liveness._answer = lambda: None  # type: ignore[method-assign]
    settings = leader_settings(lease=9, stall_limit=12)
    held = await bench.take(settings=settings, liveness=liveness)
    await asyncio.sleep(15)  # first asked at 3 s, silent beyond its limit after 15 s
    assert held.is_valid
    last_s = bench.port.renewals[-1][0]
    await asyncio.sleep(20)
    assert bench.port.renewals[-1][0] <= last_s + 3
    assert held.ended_because == "deadline_passed"
    assert bench.facts.count("leader_stalled") > 0


@virtual
async def test_an_event_loop_that_answers_again_in_time_keeps_its_lease() -> None:
    bench = Bench()
    liveness = LoopLiveness(asyncio.get_running_loop(), bench.clock)
    answer = liveness._answer
    liveness._answer = lambda: None  # type: ignore[method-assign]
    held = await bench.take(settings=leader_settings(lease=9, stall_limit=12), liveness=liveness)
    await asyncio.sleep(12)
    answer()
    liveness._answer = answer  # type: ignore[method-assign]
    await asyncio.sleep(40)
    assert held.is_valid


@virtual
async def test_a_hint_makes_the_keeper_look_at_once() -> None:
    bench = Bench()
    held = await bench.take()

    async def asked(key: TermKey) -> Answer:
        return lease(key.name, key.holder_id, key.epoch, key.lease_s, asked=True)

    bench.port.renewing = asked
    await asyncio.sleep(1)
    bench.keeper.hint("one")
    await asyncio.sleep(0.01)
    assert held.step_down_requested
