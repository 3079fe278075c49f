"""More intents than a gateway can finish: what it can take goes to those that can still make their deadline."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from submission_manager.executor.ends import NO_TIME, PASSED, LateWatch
from submission_manager.executor.executor import ExecutorSettings
from submission_manager.model.call_times import LANES_MAX, CallTimes, latest_start_us
from submission_manager.model.intents import Status
from submission_manager.model.outcomes import Outcome
from submission_manager.ports import Started
from submission_manager.schedule.schedule import Schedule
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import ACCEPTED, TROUBLE, Facts, Instance, Scene, within

S = 1_000_000
SLOW = "http://slow"


class Uneven:
    """Accepts each after the next of these seconds, again and again."""

    def __init__(self, *takes_s: float) -> None:
        self.takes_s = itertools.cycle(takes_s)
        self.calls = 0

    async def submit(self, started: Started, limit_s: float) -> Outcome:
        self.calls += 1
        await asyncio.sleep(next(self.takes_s))
        return ACCEPTED


async def overloaded(takes_s: tuple[float, ...], seconds: int) -> tuple[Scene, Instance, Uneven]:
    """One at a time, about one a second; two a second come, each to be accepted within 20 s."""
    scene, gateway = Scene(), Uneven(*takes_s)
    one = await scene.instance(executor=ExecutorSettings(concurrency=1))
    one.executor._gateway = gateway
    await one.start()
    await one.leads()
    for second, half in itertools.product(range(seconds), "ab"):
        scene.table.submit(f"{second}{half}", within(20, SLOW))
        await asyncio.sleep(0.5)
    return scene, one, gateway


def accepted(scene: Scene) -> int:
    return sum(row.status is Status.ACCEPTED for row in scene.table.rows.values())


def told(one: Instance, event: str) -> list[dict[str, Any]]:
    return [fields for name, fields in one.facts.told if name == event]


@virtual
async def test_with_twice_what_it_can_take_a_gateway_still_finishes_as_many_as_it_can() -> None:
    scene, one, gateway = await overloaded((1.0,), 130)
    assert accepted(scene) >= 0.95 * 130
    assert one.counts.of["late sms.urgent"] == 0
    assert gateway.calls <= 130


@virtual
async def test_with_uneven_calls_too_four_fifths_of_what_it_can_take_are_accepted_in_time() -> None:
    scene, _, gateway = await overloaded((0.2, 1.8, 0.6, 1.0, 1.4), 130)
    assert accepted(scene) >= 0.8 * gateway.calls
    assert gateway.calls >= 0.9 * 130


@virtual
async def test_a_gateway_slower_than_the_deadline_is_still_asked_and_its_recovery_is_seen() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(concurrency=2))
    one.gateway.takes_s[SLOW] = 6.0
    await one.start()
    for number in range(30):
        scene.table.submit(f"slow{number}", within(4, SLOW))
        await asyncio.sleep(1)
    assert len(one.gateway.calls) >= 8, "two at a time for 30 s"
    one.gateway.takes_s[SLOW] = 0.1
    await asyncio.sleep(10)
    scene.table.submit("well", within(4, SLOW))
    await scene.until(lambda: scene.table.rows["well"].status is Status.ACCEPTED, limit_s=2)


@virtual
async def test_what_the_provider_took_after_the_deadline_is_counted_and_told_of_by_target() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.takes_s[SLOW] = 6.0
    scene.table.submit("late", within(5, SLOW))
    await one.start()
    await scene.until(lambda: scene.are_over("late"))
    row = scene.table.rows["late"]
    assert (row.status, row.attempts[0].outcome_status) == (Status.EXHAUSTED, "accepted")
    await scene.until(lambda: one.counts.of["late sms.urgent"] == 1, limit_s=1)
    (fields,) = told(one, "deadlines_missed")
    assert (fields["submission_target"], fields["intents"], fields["accepted_late"]) == ("sms.urgent", 1, 1)


@virtual
async def test_missed_deadlines_are_told_of_at_once_and_then_once_a_minute_for_each_target() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.gates[SLOW] = asyncio.Event()
    await one.start()
    for number in range(120):
        scene.table.submit(f"x{number}", within(1, SLOW, f"target{number % 2}"))
        await asyncio.sleep(1)
    await asyncio.sleep(30)
    lines = told(one, "deadlines_missed")
    assert 4 <= len(lines) <= 8
    await one.leadership.stop()
    assert one.run is not None
    await one.run
    assert sum(fields["intents"] for fields in told(one, "deadlines_missed")) == one.counts.of["terminal exhausted"]


@virtual
async def test_an_end_before_the_deadline_is_told_as_no_time_left_and_not_as_a_deadline_that_has_passed() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(retry_delay_s=5.0))
    one.gateway.answer = TROUBLE
    scene.table.submit("x", within(5))
    await one.start()
    await scene.until(lambda: scene.are_over("x"))
    row = scene.table.rows["x"]
    assert row.completed_at is not None
    assert ((row.completed_at - row.created_at).total_seconds() < 5, row.exhausted_reason) == (
        True,
        "deadline_exceeded",
    )
    await scene.until(lambda: bool(told(one, "deadlines_missed")), limit_s=1)
    (fields,) = told(one, "deadlines_missed")
    assert (fields["intents"], fields["no_time_left"], fields["why"]) == (1, 1, NO_TIME)


@virtual
async def test_some_that_ended_early_do_not_hide_those_whose_deadline_has_passed() -> None:
    facts = Facts()
    watch = LateWatch(facts)
    watch.missed("t", "first")
    watch.missed("t", "passed")
    watch.missed("t", "early", is_early=True)
    watch.close()
    (_, first), (_, rest) = facts.told
    assert (first["no_time_left"], first["why"]) == (0, PASSED)
    assert (rest["intents"], rest["no_time_left"]) == (2, 1)
    assert rest["why"].startswith(PASSED)
    assert rest["why"].endswith(NO_TIME)


# The rule


@pytest.mark.parametrize(
    ("expected_s", "latest_s"), [(0, 30), (1, 29), (10, 20), (11, 20), (1000, 20)], ids=lambda value: f"{value}"
)
def test_the_latest_start_is_an_attempt_before_the_deadline_but_not_in_the_first_half(expected_s, latest_s) -> None:
    assert latest_start_us(10 * S, 30 * S, expected_s * S) == latest_s * S


def test_an_expected_time_is_above_nearly_all_attempts_follows_them_and_is_0_at_first() -> None:
    times = CallTimes()
    assert times.expected_us(SLOW) == 0
    for took_s in [1.0, 0.5, 1.5] * 30:
        times.took(SLOW, int(took_s * S))
    assert 1.5 * S < times.expected_us(SLOW) < 3.5 * S
    for _ in range(60):
        times.took(SLOW, S // 10)
    assert times.expected_us(SLOW) < S // 4


def test_expected_times_are_kept_of_so_many_gateways_and_no_more() -> None:
    times = CallTimes()
    for number in range(LANES_MAX + 1):
        times.took(f"{number}", S)
        times.took("busy", S)
    assert (times.expected_us("0"), times.expected_us("busy") > 0, len(times._of)) == (0, True, LANES_MAX)


def test_whoever_cannot_make_it_has_no_turn_and_ends_at_its_deadline() -> None:
    schedule = Schedule()
    schedule.observe("hopeless", 0, SLOW, deadline_us=20 * S)
    schedule.observe("well", 0, SLOW, deadline_us=25 * S)
    job = schedule.take(19 * S, lambda _: 0, lambda _: 2 * S)
    assert job is not None
    assert (job.intent_id, schedule.take(19 * S, lambda _: 0, lambda _: 2 * S)) == ("well", None)
    assert schedule.next_deadline_us() == 20 * S
    assert [job.intent_id for job in schedule.expired(20 * S, 10)] == ["hopeless"]
