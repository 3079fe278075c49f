"""A lock on one row costs nobody else anything; a term that is given up keeps its lease while calls are under way."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from fencehold import Unavailable
from fencehold.testing.simulation import virtual_loop
from submission_manager.executor.executor import ExecutorSettings
from submission_manager.executor.running import PUT_OFF_MAX
from submission_manager.model.intents import Status, WebhookStatus
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import LEASE_S, Instance, Scene, at_gateway, calling, counted, with_webhook

LOCKED = Unavailable("canceling statement due to lock timeout", code="locked")
CANCELED = Unavailable("canceling statement due to statement timeout", code="canceled")


def parked(one: Instance) -> list[dict[str, Any]]:
    return [fields for event, fields in one.facts.told if event == "intent_parked"]


# One locked row


@pytest.mark.parametrize("error", [LOCKED, CANCELED], ids=["lock", "statement"])
@pytest.mark.parametrize("write", ["start", "record"])
@pytest.mark.parametrize("retry_on_error", [False, True], ids=["drop", "retry"])
def test_a_timeout_on_one_row_parks_its_intent_and_the_leader_and_the_others_go_on(
    write: str, error: Exception, retry_on_error: bool
) -> None:
    async def run() -> None:
        scene = Scene()
        one = await (await scene.instance(retry_on_error=retry_on_error)).start()
        await one.leads()
        scene.table.failing[f"{write} locked"] = error
        scene.table.submit("locked")
        await scene.until(lambda: bool(parked(one)))
        for number in range(20):
            scene.table.submit(f"x{number}")
        await scene.until(lambda: scene.are_over(*(f"x{number}" for number in range(20))), limit_s=2)
        await asyncio.sleep(90)
        del scene.table.failing[f"{write} locked"]
        await scene.until(lambda: scene.are_over("locked"), limit_s=31)
        assert scene.table.rows["locked"].status is Status.ACCEPTED
        assert one.gateway.calls.count("locked/1") == len(one.gateway.calls) - 20 == 1
        assert (await one.leads()).epoch == 1
        assert "executor_sql_error" not in one.facts.names()

    virtual_loop.run(run)


@pytest.mark.parametrize("write", ["start", "record"])
def test_a_write_that_meets_a_lock_is_tried_again_later_and_later_and_after_30_s_at_the_latest(write: str) -> None:
    async def run() -> None:
        scene = Scene()
        one = await (await scene.instance()).start()
        await one.leads()
        tries: list[float] = []
        verb, attempt = f"{write} x", scene.table._pass

        async def noted(name: str) -> None:
            if name == verb:
                tries.append(asyncio.get_running_loop().time())
            await attempt(name)

        scene.table._pass = noted  # type: ignore[method-assign, assignment]
        scene.table.failing[verb] = LOCKED
        scene.table.submit("x")
        await asyncio.sleep(100)
        pauses = [round(later - earlier) for earlier, later in itertools.pairwise(tries)]
        assert pauses == [1, 2, 4, 8, 16, 30, 30]

    virtual_loop.run(run)


@virtual
async def test_locks_are_told_in_words_once_and_then_once_a_minute_how_many() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    await one.leads()
    scene.table.failing["start"] = LOCKED
    for number in range(10):
        scene.table.submit(f"x{number}")
    await asyncio.sleep(59)
    (told,) = parked(one)
    assert "another session has locked its row" in told["why"]
    assert (told["write"], told["intents"], told["error"]) == ("start", 1, str(LOCKED))
    await asyncio.sleep(3)
    assert [fields["intents"] > 9 for fields in parked(one)] == [False, True]


@virtual
async def test_a_start_without_an_answer_says_so_in_words() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.gates["start x"] = asyncio.Event()
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: bool(parked(one)))
    (told,) = parked(one)
    assert told["why"].startswith("the database did not answer")
    assert "TimeoutError" not in str(told)


@virtual
async def test_records_that_wait_for_locks_leave_their_places_to_others_but_not_without_end() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(concurrency=4))
    await one.start()
    await one.leads()
    for number in range(PUT_OFF_MAX):
        scene.table.failing[f"record {number}"] = LOCKED
        scene.table.submit(f"{number}", at_gateway("http://sms"))
    await scene.until(lambda: len(one.executor.in_hand) == PUT_OFF_MAX)
    scene.table.submit("x", at_gateway("http://sms"))
    await scene.until(lambda: scene.are_over("x"), limit_s=3)
    scene.table.failing["record"] = LOCKED  # a table, not a row: nothing can be recorded, so calls must come to an end
    for number in range(50):
        scene.table.submit(f"more-{number}", at_gateway("http://sms"))
    await asyncio.sleep(200)
    assert len(one.executor.in_hand) == PUT_OFF_MAX + 4


@virtual
async def test_a_webhook_whose_record_meets_a_lock_is_told_once() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    scene.table.failing["record_webhook"] = LOCKED
    scene.table.submit("x", with_webhook())
    await asyncio.sleep(90)
    del scene.table.failing["record_webhook"]
    await scene.until(lambda: scene.table.rows["x"].webhook_status is WebhookStatus.DELIVERED, limit_s=31)
    assert one.receiver.told == ["x"]
    assert (await one.leads()).epoch == 1


# A term that is given up


async def thirteen_calls(scene: Scene) -> Instance:
    one = await scene.instance("a")
    one.gateway.gates["http://sms"] = asyncio.Event()
    for number in range(13):
        scene.table.submit(f"x{number}", at_gateway("http://sms"))
    await one.start()
    await scene.until(lambda: len(one.gateway.calls) == 13)
    return one


@virtual
async def test_calls_under_way_when_a_term_is_given_up_are_recorded_and_not_made_again() -> None:
    scene = Scene()
    one = await thirteen_calls(scene)
    two = await (await scene.instance("b")).start()
    scene.table.failing_once["refresh"] = Unavailable("down")
    scene.table.submit("new", at_gateway("http://sms"))
    await scene.until(lambda: "leader_lost" in one.facts.names())
    await asyncio.sleep(LEASE_S / 3)
    assert not two.leader.is_leader
    assert one.gateway.calls.count("new/1") == 0, "nothing new begins"
    one.gateway.gates["http://sms"].set()
    await scene.until(lambda: two.leader.is_leader, limit_s=0.5)
    await scene.until(lambda: scene.are_over(*scene.table.rows), limit_s=1)
    assert all(len(row.attempts) == 1 for row in scene.table.rows.values())
    assert len(one.gateway.calls + two.gateway.calls) == 14
    (lost,) = [fields for event, fields in one.facts.told if event == "leader_lost"]
    assert lost["attempts_under_way"] == 13


@virtual
async def test_a_fault_of_our_own_keeps_the_lease_for_calls_under_way_too() -> None:
    scene = Scene()
    one = await thirteen_calls(scene)
    scene.table.failing_once["refresh"] = ZeroDivisionError("ours")
    await scene.until(lambda: "internal_error" in one.facts.names())
    one.gateway.gates["http://sms"].set()
    await scene.until(lambda: scene.are_over(*scene.table.rows), limit_s=1)
    assert len(one.gateway.calls) == 13


@virtual
async def test_calls_that_hang_keep_a_lease_that_is_given_up_no_longer_than_it_would_have_lasted() -> None:
    scene = Scene()
    one = await thirteen_calls(scene)
    two = await (await scene.instance("b")).start()
    scene.table.failing_once["refresh"] = Unavailable("down")
    await scene.until(lambda: "leader_lost" in one.facts.names())
    began_s = asyncio.get_running_loop().time()
    await scene.until(lambda: two.leader.is_leader, limit_s=LEASE_S)
    assert asyncio.get_running_loop().time() - began_s > LEASE_S / 3
    await scene.until(lambda: two.counts.of["attempt unknown"] == 13)
    assert scene.table.rows["x0"].attempts[0].error == OUTCOME_UNKNOWN


@virtual
async def test_a_record_that_fails_is_tried_again_while_the_lease_that_is_given_up_lasts() -> None:
    scene = Scene()
    one = await calling(scene)
    await (await scene.instance("b")).start()
    scene.table.failing["record"] = Unavailable("down")
    one.gateway.gates["x"].set()
    await scene.until(lambda: "leader_lost" in one.facts.names())
    del scene.table.failing["record"]
    await scene.until(lambda: scene.are_over("x"), limit_s=1.5)
    assert [attempt.error for attempt in scene.table.rows["x"].attempts] == [None]


# A lease that is lost


@virtual
async def test_an_attempt_that_is_fenced_out_is_told_with_its_key_and_what_the_gateway_had_said() -> None:
    scene = Scene()
    one = await calling(scene)
    scene.table.reached["record"], scene.table.gates["record"] = asyncio.Event(), asyncio.Event()
    one.gateway.gates["x"].set()
    await scene.table.reached["record"].wait()
    (await one.leads()).lost("test")
    await scene.until(lambda: "attempt_fenced_out" in one.facts.names(), limit_s=1)
    (told,) = [fields for event, fields in one.facts.told if event == "attempt_fenced_out"]
    assert (told["key"], told["attempt_number"], told["received"], told["write"]) == ("x/1", 1, "accepted", "record")
    assert counted(one.counts.fenced_out.labels("record")) == 1
