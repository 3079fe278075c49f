"""What the leader says of intents that wait beyond their time, and how long attempts take."""

import asyncio

from fencehold import Unavailable
from submission_manager.executor.executor import ExecutorSettings
from submission_manager.model.intents import Backlog
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import Scene


@virtual
async def test_the_leader_counts_what_is_overdue_and_says_how_old_the_oldest_is() -> None:
    scene = Scene()
    one = await scene.instance(executor=ExecutorSettings(gateway_limit_s=1000))
    one.gateway.gates["http://sms"] = asyncio.Event()
    await one.start()
    scene.table.submit("stuck")
    await scene.until(lambda: bool(one.counts.backlogs and one.counts.backlogs[-1] and one.counts.backlogs[-1].overdue))
    newest = one.counts.backlogs[-1]
    assert newest is not None
    assert (newest.overdue, newest.oldest_due_s >= 30) == (1, True)
    one.gateway.gates["http://sms"].set()
    await scene.until(lambda: one.counts.backlogs[-1] == Backlog(0, 0.0, 0))


@virtual
async def test_a_look_without_an_answer_is_told_and_costs_nobody_the_lease() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.failing["backlog"] = Unavailable("too slow", code="no_answer")
    await one.start()
    term = await one.leads()
    await scene.until(lambda: one.counts.backlogs.count(None) >= 2)
    assert "backlog_unknown" in one.facts.names()
    assert term.is_valid
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))


@virtual
async def test_an_attempt_lasts_until_its_record_and_the_call_is_timed_alone() -> None:
    scene = Scene()
    one = await scene.instance()
    call, record = asyncio.Event(), asyncio.Event()
    one.gateway.gates["x"], scene.table.gates["record"] = call, record
    await one.start()
    scene.table.submit("x")
    await scene.until(one.gateway.called.is_set)
    await asyncio.sleep(2)
    call.set()
    await asyncio.sleep(3)
    record.set()
    await scene.until(lambda: bool(one.counts.attempts_s))
    assert [round(seconds or 0) for seconds in one.counts.attempts_s] == [5]
    assert [round(seconds) for seconds in one.counts.calls_s] == [2]


@virtual
async def test_an_attempt_whose_outcome_is_unknown_has_no_duration() -> None:
    scene = Scene()
    first, second = await scene.instance("a"), await scene.instance("b")
    first.gateway.gates["x"] = asyncio.Event()
    await first.start()
    await first.leads()
    scene.table.submit("x")
    await scene.until(first.gateway.called.is_set)
    first.die()
    await second.start()
    await scene.until(lambda: second.counts.of["attempt unknown"] == 1)
    assert second.counts.attempts_s[0] is None
