"""What a leader leaves behind, and what its successor, and whoever stops it, are told of that."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fencehold import Unavailable
from submission_manager.leadership.leadership import CUT, LEASE_LOST
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import Scene, at_gateway, calling

# What an earlier leader left


@virtual
async def test_attempts_that_a_dead_leader_left_open_are_named_once_when_the_next_one_begins() -> None:
    scene = Scene()
    one = await scene.instance("a")
    one.gateway.gates["http://sms"] = asyncio.Event()
    for number in range(25):
        scene.table.submit(f"x{number}", at_gateway(f"http://{number % 2}"))
        one.gateway.gates[f"http://{number % 2}"] = asyncio.Event()
    await one.start()
    await scene.until(lambda: len(one.gateway.calls) == 25)
    one.die()
    two = await (await scene.instance("b")).start()
    await scene.until(lambda: scene.are_over(*scene.table.rows))
    (told,) = [fields for event, fields in two.facts.told if event == "outcomes_unknown"]
    assert (told["attempts"], len(told["keys"]), len(told["intents"])) == (25, 20, 20)
    assert set(told["keys"]) < {f"x{number}/1" for number in range(25)}
    assert "outcomes_unknown" not in one.facts.names()


@virtual
async def test_a_database_that_does_not_say_what_was_left_open_ends_no_term() -> None:
    scene = Scene()
    scene.table.failing["left_open"] = Unavailable("slow")
    scene.table.submit("x")
    one = await (await scene.instance()).start()
    await scene.until(lambda: scene.are_over("x"))
    assert [fields["sql_error"] for event, fields in one.facts.told if event == "outcomes_unknown"]
    assert (await one.leads()).epoch == 1


# A stop while the database is silent


@virtual
async def test_a_stop_while_the_database_is_frozen_names_what_it_could_not_record_and_counts_it() -> None:
    scene = Scene()
    one = await scene.instance(stop_limit_s=15)
    one.gateway.gates["x"] = asyncio.Event()
    await one.start()
    scene.table.submit("x")
    await one.gateway.called.wait()
    for verb in ("refresh", "record"):
        scene.table.gates[verb] = asyncio.Event()
    scene.shelf.rows["one"] = replace(scene.shelf.rows["one"], holder_id="nobody")  # so it cannot renew either
    one.gateway.gates["x"].set()
    assert await one.leadership.stop() == 1
    (told,) = [fields for event, fields in one.facts.told if event == "attempts_cut"]
    assert (told["intents"], told["keys"], told["received"]) == (["x"], ["x/1"], ["x/1: accepted"])


@virtual
async def test_attempts_whose_lease_is_lost_during_a_stop_are_told_with_the_time_it_took_and_that_reason() -> None:
    scene = Scene()
    one = await calling(scene)
    stopping = asyncio.create_task(one.leadership.stop())
    await asyncio.sleep(2)
    (await one.leads()).lost("test")
    one.gateway.gates["x"].set()
    assert await stopping == 1
    (told,) = [fields for event, fields in one.facts.told if event == "attempts_cut"]
    assert (told["after_s"], told["why"].startswith(LEASE_LOST)) == (2.0, True)
    assert CUT not in told["why"]


@virtual
async def test_attempts_that_the_limit_cuts_are_told_with_that_limit() -> None:
    scene = Scene()
    one = await scene.instance(stop_limit_s=3)
    one.gateway.gates["x"] = asyncio.Event()
    await one.start()
    scene.table.submit("x")
    await one.gateway.called.wait()
    assert await one.leadership.stop() == 1
    (told,) = [fields for event, fields in one.facts.told if event == "attempts_cut"]
    assert (told["after_s"], told["why"].startswith(CUT)) == (3.0, True)


@virtual
async def test_what_was_lost_long_before_a_stop_is_not_told_again() -> None:
    scene = Scene()
    one = await calling(scene)
    (await one.leads()).lost("test")
    one.gateway.gates["x"].set()
    await scene.until(lambda: "attempt_fenced_out" in one.facts.names())
    await asyncio.sleep(60)
    assert await one.leadership.stop() == 0
    assert "attempts_cut" not in one.facts.names()
