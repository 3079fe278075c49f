"""The leader's attempts: what is called, what is recorded, and what a lost lease leaves undone."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from fencehold import Unavailable
from submission_manager.executor.executor import ExecutorSettings
from submission_manager.model.intents import Status
from submission_manager.model.outcomes import OUTCOME_UNKNOWN
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import (
    LEASE_S,
    TROUBLE,
    Scene,
    at_gateway,
    calling,
    counted,
    taken_over,
)

# Attempts


@virtual
async def test_an_accepted_intent_is_called_once_and_is_over() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))
    await asyncio.sleep(30)
    assert one.gateway.calls == ["x/1"]
    assert scene.table.rows["x"].status is Status.ACCEPTED
    assert one.counts.of["terminal accepted"] == one.counts.of["attempt accepted"] == 1


@virtual
async def test_a_failed_attempt_is_repeated_when_the_database_says_and_as_often_as_the_policy_allows() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answer = TROUBLE
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))
    at_s = [attempt.started_at.timestamp() for attempt in scene.table.rows["x"].attempts]
    assert one.gateway.calls == ["x/1", "x/2", "x/3"]
    assert all(5.0 <= later - earlier < 5.1 for earlier, later in itertools.pairwise(at_s))
    assert counted(one.counts.retries) == 2
    assert one.counts.of["exhausted max_attempts"] == 1


@pytest.mark.fault("callbacks", "service", "any")
@virtual
async def test_a_gateway_that_hangs_keeps_its_own_lane_busy_and_no_other() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.gates["http://hung"] = asyncio.Event()
    for number in range(60):
        scene.table.submit(f"h{number}", at_gateway("http://hung"))
    for number in range(60):
        scene.table.submit(f"w{number}", at_gateway("http://well"))
    await one.start()
    await scene.until(lambda: scene.are_over(*(f"w{n}" for n in range(60))), limit_s=1)
    assert sum(key.startswith("h") for key in one.gateway.calls) == 16
    assert len(one.executor.in_hand) == 16


@virtual
async def test_all_gateways_together_are_called_within_the_total() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(concurrency=4, concurrency_total=10))
    for number in range(25):
        url = f"http://{number % 5}"
        one.gateway.gates[url] = asyncio.Event()
        scene.table.submit(f"x{number}", at_gateway(url))
    await one.start()
    await scene.until(lambda: scene.are_over(*scene.table.rows), limit_s=1000)
    assert one.counts.inflight_max == 10


@virtual
async def test_a_gateway_client_that_overruns_its_limit_is_cut_and_recorded_in_the_clients_own_words() -> None:
    scene = Scene()
    one = await scene.instance()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    one.gateway.submit = never  # type: ignore[method-assign, assignment]
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: len(scene.table.rows["x"].attempts) == 1)
    assert scene.table.rows["x"].attempts[0].error == "gateway: no answer within 10 s"


@virtual
async def test_an_idea_of_the_databases_clock_that_is_early_makes_no_storm() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answer = TROUBLE
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: len(scene.table.rows["x"].attempts) == 1)
    tries = 0
    start = scene.table.start

    async def counted(term, intent_id, retry_delay_s):
        nonlocal tries
        tries += 1
        return await start(term, intent_id, retry_delay_s)

    scene.table.start = counted  # type: ignore[method-assign]
    page = scene.table._page
    scene.table._page = lambda rows, guard: replace(  # type: ignore[method-assign]
        page(rows, guard), now=page(rows, guard).now.replace(year=2100)
    )
    await scene.until(lambda: len(scene.table.rows["x"].attempts) == 2)
    assert 2 <= tries <= 110  # every 50 ms for 5 s


# The lease is lost


@virtual
async def test_an_attempt_not_yet_issued_when_the_lease_is_lost_is_aborted() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.reached["start"], scene.table.gates["start"] = asyncio.Event(), asyncio.Event()
    scene.table.submit("x")
    await one.start()
    await scene.table.reached["start"].wait()
    term = await one.leads()
    term.lost("test")
    await asyncio.sleep(0.1)
    assert len(one.executor.in_hand) == 0
    scene.table.gates["start"].set()
    await asyncio.sleep(1)
    assert one.gateway.calls == []
    assert scene.table.starts == []


@virtual
async def test_a_lease_lost_between_start_and_call_keeps_the_call_from_being_made() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.submit("x")
    start = scene.table.start

    async def then_lost(term, intent_id, retry_delay_s):
        started = await start(term, intent_id, retry_delay_s)
        term.lost("test")
        return started

    scene.table.start = then_lost  # type: ignore[method-assign]
    await one.start()
    await scene.until(lambda: bool(scene.table.starts))
    await asyncio.sleep(1)
    assert one.gateway.calls == []


@virtual
async def test_a_call_under_way_when_the_lease_is_lost_goes_on_and_nothing_of_it_is_written() -> None:
    scene = Scene()
    one = await calling(scene)
    term = await one.leads()
    writes = scene.table.writes
    term.lost("test")
    await asyncio.sleep(0.1)
    one.gateway.gates["x"].set()
    await asyncio.sleep(0.1)
    assert one.gateway.ended == ["x/1"]
    assert scene.table.writes == writes
    assert counted(one.counts.fenced_out.labels("record")) == 1


@virtual
async def test_a_stale_leaders_late_record_is_refused_and_ends_its_term() -> None:
    scene = Scene()
    one = await calling(scene)
    term = await one.leads()
    writes = scene.table.writes
    taken_over(scene)
    assert term.is_valid
    one.gateway.gates["x"].set()
    await asyncio.sleep(0.1)
    assert not term.is_valid
    assert scene.table.writes == writes
    assert counted(one.counts.fenced_out.labels("record")) == 1


@virtual
async def test_the_next_leader_counts_an_attempt_whose_outcome_nobody_knows() -> None:
    scene = Scene()
    one = await calling(scene)
    (await one.leads()).lost("test")
    one.die()
    two = await (await scene.instance("b")).start()
    await scene.until(lambda: scene.are_over("x"))
    attempts = scene.table.rows["x"].attempts
    assert [attempt.error for attempt in attempts] == [OUTCOME_UNKNOWN, None]
    assert one.gateway.calls + two.gateway.calls == ["x/1", "x/2"]
    assert two.counts.of["attempt unknown"] == 1


@virtual
async def test_leaders_that_die_in_turn_do_not_call_more_often_than_the_policy_allows() -> None:
    scene = Scene()
    scene.table.submit("x")
    calls: list[str] = []
    for holder_id in "abcde":
        one = await scene.instance(holder_id)
        one.gateway.gates["x"] = asyncio.Event()
        await one.start()
        await scene.until(lambda one=one: bool(one.gateway.calls) or scene.are_over("x"))  # type: ignore[misc]
        one.die()
        calls += one.gateway.calls
    assert calls == ["x/1", "x/2", "x/3"]
    assert scene.table.rows["x"].exhausted_reason == "max_attempts"


# Poison


@virtual
async def test_an_outcome_that_cannot_be_stored_is_recorded_as_an_error_and_the_leader_stays() -> None:
    scene = Scene()
    one = await scene.instance()
    record = scene.table.record

    async def picky(term, started, outcome, retry_delay_s):
        if outcome.error is None:
            raise ValueError("cannot be stored")
        return await record(term, started, outcome, retry_delay_s)

    scene.table.record = picky  # type: ignore[method-assign]
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: bool(scene.table.rows["x"].attempts))
    assert scene.table.rows["x"].attempts[0].error == "the outcome could not be recorded: ValueError"
    assert (await one.leads()).epoch == 1


@virtual
async def test_an_intent_that_cannot_be_recorded_at_all_is_left_alone_and_the_others_go_on() -> None:
    scene = Scene()
    one = await scene.instance()
    record = scene.table.record

    async def picky(term, started, outcome, retry_delay_s):
        if started.intent_id == "poison":
            raise ValueError("cannot be stored")
        return await record(term, started, outcome, retry_delay_s)

    scene.table.record = picky  # type: ignore[method-assign]
    await one.start()
    scene.table.submit("poison")
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))
    await asyncio.sleep(60)
    assert one.gateway.calls.count("poison/1") == 1
    assert "intent_parked" in one.facts.names()
    assert (await one.leads()).epoch == 1


@pytest.mark.fault("slow", "service", "any")
@virtual
async def test_an_intent_whose_row_somebody_has_locked_holds_up_nobody_and_is_tried_again() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.gates["start locked"] = asyncio.Event()
    await one.start()
    scene.table.submit("locked")
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"), limit_s=2)
    await scene.until(lambda: "intent_parked" in one.facts.names(), limit_s=12)
    scene.table.gates["start locked"].set()
    await scene.until(lambda: scene.are_over("locked"), limit_s=31)
    assert (await one.leads()).epoch == 1


# Stop


@pytest.mark.fault("shutdown", "service", "any")
@virtual
async def test_a_stop_lets_what_runs_finish_begins_nothing_new_and_gives_the_lease_back() -> None:
    scene = Scene()
    one = await calling(scene)
    stopping = asyncio.create_task(one.leadership.stop())
    await asyncio.sleep(0.1)
    scene.table.submit("y")
    await asyncio.sleep(2)
    one.gateway.gates["x"].set()
    await stopping
    assert scene.table.rows["x"].status is Status.ACCEPTED
    assert one.gateway.calls == ["x/1"]
    two = await (await scene.instance("b")).start()
    await scene.until(lambda: scene.are_over("y"), limit_s=0.5)
    assert two.gateway.calls == ["y/1"]


@pytest.mark.fault("shutdown", "service", "any")
@virtual
async def test_a_stop_does_not_wait_for_a_call_that_hangs_beyond_its_limit() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(gateway_limit_s=600), stop_limit_s=5)
    one.gateway.gates["x"] = asyncio.Event()
    await one.start()
    scene.table.submit("x")
    await one.gateway.called.wait()
    async with asyncio.timeout(6):
        await one.leadership.stop()
    assert one.run is not None
    await asyncio.wait([one.run], timeout=1)
    assert one.run.done()
    assert one.gateway.ended == []
    assert scene.table.rows["x"].marker_epoch == 1


@virtual
async def test_calls_of_an_earlier_term_still_count_as_calls_to_their_gateway() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(concurrency=2, gateway_limit_s=60))
    one.gateway.gates["http://sms"] = asyncio.Event()
    for number in range(4):
        scene.table.submit(f"x{number}", at_gateway("http://sms"))
    await one.start()
    await scene.until(lambda: len(one.gateway.calls) == 2)
    scene.table.failing["refresh"] = Unavailable("down")
    await scene.until(lambda: not one.leader.is_leader)
    del scene.table.failing["refresh"]
    await scene.until(lambda: one.leader.is_leader, limit_s=2 * LEASE_S)
    await asyncio.sleep(10)
    assert len(one.executor.in_hand) == 2
