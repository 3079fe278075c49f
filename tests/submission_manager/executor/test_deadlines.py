"""Deadlines are kept whatever waits: the urgent go first, the patient go on, and who is too late ends in time."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable
from typing import Any

from fencehold import Unavailable
from submission_manager.model.intents import Exhausted, Status
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import Instance, Scene, at_gateway, with_webhook, within
from tests.submission_manager.executor.table import Row

SLOW = "http://slow"


def names(what: str, count: int) -> list[str]:
    return [f"{what}{n}" for n in range(count)]


def submit(scene: Scene, what: str, count: int, contract) -> list[str]:
    for name in names(what, count):
        scene.table.submit(name, contract)
    return names(what, count)


def rows(scene: Scene, ids: Iterable[str]) -> list[Row]:
    return [scene.table.rows[one] for one in ids]


def ended_after_s(row: Row) -> float:
    assert row.completed_at is not None, "it is pending still"
    return (row.completed_at - row.created_at).total_seconds()


async def at_a_slow_gateway(scene: Scene, takes_s: float = 0.3, **options: Any) -> Instance:
    """16 at a time, so 53 a second: 8,000 take two and a half minutes."""
    one = await scene.instance(**options)
    one.gateway.takes_s[SLOW] = takes_s
    return await one.start()


# Turns


@virtual
async def test_behind_8000_without_a_deadline_20_urgent_ones_are_all_attempted_in_time() -> None:
    scene = Scene()
    bulk = submit(scene, "bulk", 8_000, at_gateway(SLOW))
    one = await at_a_slow_gateway(scene)
    await asyncio.sleep(70)  # longer than the virtual deadline: by now each of them has waited for too long
    urgent = submit(scene, "urgent", 20, within(20, SLOW))
    await asyncio.sleep(20)
    assert [row.status for row in rows(scene, urgent)] == [Status.ACCEPTED] * 20
    assert max(ended_after_s(row) for row in rows(scene, urgent)) < 5
    assert sum(row.status is Status.ACCEPTED for row in rows(scene, bulk)) > 4_000
    assert len(one.executor.in_hand) == 16


@virtual
async def test_behind_8000_with_a_far_deadline_20_urgent_ones_are_all_attempted_in_time() -> None:
    scene = Scene()
    submit(scene, "bulk", 8_000, within(86_400, SLOW, "sms.bulk"))
    await at_a_slow_gateway(scene)
    await asyncio.sleep(10)
    urgent = submit(scene, "urgent", 20, within(20, SLOW))
    await asyncio.sleep(20)
    assert [row.status for row in rows(scene, urgent)] == [Status.ACCEPTED] * 20


@virtual
async def test_bulk_goes_on_beside_more_urgent_ones_than_the_gateway_can_take() -> None:
    scene = Scene()
    bulk = submit(scene, "bulk", 500, at_gateway(SLOW))
    one = await at_a_slow_gateway(scene, takes_s=1.0, virtual_deadline_s=10.0)
    for second in range(60):
        submit(scene, f"urgent{second}.", 20, within(20, SLOW))
        await asyncio.sleep(1)
    attempted = {key.partition("/")[0] for key in one.gateway.calls}
    done = len(attempted.intersection(bulk))
    assert 100 < done < 300, "a quarter of some 900"
    assert len(attempted) - done > 600


@virtual
async def test_a_target_of_higher_priority_goes_before_the_others_of_its_gateway() -> None:
    scene = Scene()
    submit(scene, "plain", 500, within(600, SLOW, "sms.plain"))
    one = await at_a_slow_gateway(scene, takes_s=1.0, priorities={"sms.vip": 3})
    await asyncio.sleep(5)
    vip = submit(scene, "vip", 48, within(86_400, SLOW, "sms.vip"))
    await asyncio.sleep(6)
    assert all(row.status is Status.ACCEPTED for row in rows(scene, vip))
    assert len(one.gateway.calls) < 200


# Ends


@virtual
async def test_a_deadline_passes_on_time_while_the_gateway_hangs_and_its_lane_is_full() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.gates[SLOW] = asyncio.Event()
    urgent = submit(scene, "urgent", 100, within(5, SLOW))
    await one.start()
    await asyncio.sleep(4.9)
    assert not any(scene.are_over(name) for name in urgent)
    await asyncio.sleep(0.2)
    waiting = [row for row in rows(scene, urgent) if row.marker_epoch is None]
    assert len(waiting) == 84
    assert {row.exhausted_reason for row in waiting} == {Exhausted.DEADLINE_EXCEEDED}
    assert all(ended_after_s(row) < 5.1 and row.attempts == [] for row in waiting)
    await asyncio.sleep(7)
    in_hand = [row for row in rows(scene, urgent) if row.attempts]
    assert all(5 <= ended_after_s(row) < 11.1 for row in in_hand), "those end with their calls"
    assert (len(in_hand), one.counts.of["exhausted deadline_exceeded"]) == (16, 100)


@virtual
async def test_8000_that_expire_at_once_are_ended_in_batches_while_others_are_attempted() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.gates[SLOW] = asyncio.Event()
    late = submit(scene, "late", 8_000, within(5, SLOW))
    await one.start()
    await asyncio.sleep(4.99)
    well = submit(scene, "well", 100, at_gateway("http://well"))
    await scene.until(lambda: scene.are_over(*well), limit_s=2)
    await scene.until(lambda: sum(row.status is Status.EXHAUSTED for row in rows(scene, late)) == 8_000 - 16, limit_s=1)
    assert max(scene.table.expiries) <= 500
    assert sum(scene.table.expiries) == 8_000 - 16, "each was asked for once"


@virtual
async def test_what_ends_at_its_deadline_owes_its_webhook() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.gates[SLOW] = asyncio.Event()
    submit(scene, "full", 16, within(60, SLOW))
    scene.table.submit("x", with_webhook(within(5, SLOW)))
    scene.table.rows["x"].due_at = scene.table.rows["x"].created_at + dt.timedelta(seconds=1)
    await one.start()
    await asyncio.wait_for(one.receiver.heard.wait(), 5.5)
    assert one.receiver.told == ["x"]


@virtual
async def test_a_new_leader_ends_at_once_what_passed_its_deadline_while_nobody_led() -> None:
    scene = Scene()
    late = submit(scene, "late", 1_200, within(5, SLOW))
    await asyncio.sleep(60)
    one = await (await scene.instance()).start()
    await one.leads()
    await scene.until(lambda: scene.are_over(*late), limit_s=1)
    assert one.gateway.calls == []


@virtual
async def test_an_intent_that_somebody_has_locked_is_told_of_and_ended_when_it_is_free() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.gates[SLOW] = asyncio.Event()
    submit(scene, "full", 16, at_gateway(SLOW))
    await one.start()
    await one.gateway.called.wait()
    late = submit(scene, "late", 3, within(3, SLOW))
    scene.table.locked = {"late1"}
    await scene.until(lambda: scene.are_over("late0", "late2"), limit_s=3.2)
    await asyncio.sleep(5)
    assert [fields["intent_id"] for event, fields in one.facts.told if event == "expiry_put_off"] == ["late1"]
    assert len(scene.table.expiries) < 10
    scene.table.locked = set()
    await scene.until(lambda: scene.are_over(*late), limit_s=1.5)


@virtual
async def test_an_intent_whose_end_cannot_be_stored_costs_the_others_nothing() -> None:
    scene = Scene()
    one = await scene.instance()
    late = submit(scene, "late", 40, within(3, SLOW))
    scene.table.unstorable = {"late7"}
    await asyncio.sleep(10)
    await one.start()
    await scene.until(lambda: scene.are_over(*(name for name in late if name != "late7")), limit_s=15)
    assert [fields["intent_id"] for event, fields in one.facts.told if event == "intent_parked"] == ["late7"]
    assert one.leader.is_leader


@virtual
async def test_a_database_error_while_ending_drops_the_term_and_the_next_one_ends_them() -> None:
    scene = Scene()
    one = await scene.instance()
    submit(scene, "late", 3, within(3, SLOW))
    await asyncio.sleep(10)
    scene.table.failing_once["expire"] = Unavailable("gone")
    await one.start()
    await scene.until(lambda: scene.are_over(*names("late", 3)), limit_s=60)
    assert [fields["doing"] for event, fields in one.facts.told if event == "executor_sql_error"] == ["expire"]
