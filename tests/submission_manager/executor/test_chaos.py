"""Leaders lost, databases failing and gateways dawdling in any order: what the provider sees stays bounded."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from fencehold import Unavailable, Uncertain
from fencehold.testing.simulation import virtual_loop
from submission_manager.model.intents import Status
from submission_manager.model.outcomes import OUTCOME_UNKNOWN, Outcome
from submission_manager.ports import Started
from tests.submission_manager.executor.scene import ACCEPTED, TROUBLE, Instance, Scene, at_gateway

VERBS = ("rebuild", "refresh", "start", "record", "owed_webhooks")
INTENTS = 40


def dawdling(one: Instance, draw: random.Random, calls: list[str]) -> None:
    async def submit(started: Started, limit_s: float) -> Outcome:
        calls.append(started.key)
        await asyncio.sleep(draw.choice([0.0, 0.05, 3.0, 9.0]))
        return draw.choice([ACCEPTED, TROUBLE])

    one.gateway.submit = submit  # type: ignore[method-assign]


async def trouble(scene: Scene, instances: list[Instance], draw: random.Random) -> None:
    for _ in range(60):
        await asyncio.sleep(draw.uniform(0, 2))
        if draw.random() < 0.5:
            scene.table.failing_once[draw.choice(VERBS)] = draw.choice([Unavailable("down"), Uncertain("no answer")])
        for one in instances:
            if one.leader.term is not None and draw.random() < 0.3:
                one.leader.term.lost("chaos")


async def run(seed: int) -> tuple[Scene, list[str]]:
    draw, scene, calls = random.Random(seed), Scene(), list[str]()
    instances = [await scene.instance(holder_id, retry_on_error=holder_id == "c") for holder_id in "abc"]
    for one in instances:
        dawdling(one, draw, calls)
        await one.start()
    troubles = asyncio.create_task(trouble(scene, instances, draw))
    for number in range(INTENTS):
        scene.table.submit(f"x{number}", at_gateway(f"http://{number % 3}"))
        await asyncio.sleep(draw.uniform(0, 0.5))
    await troubles
    await scene.until(lambda: scene.are_over(*scene.table.rows), limit_s=600)
    return scene, calls


@pytest.mark.parametrize("seed", range(4))
def test_every_intent_ends_and_no_provider_sees_more_than_the_policy_allows(seed: int) -> None:
    scene, calls = virtual_loop.run(lambda: run(seed), seed)
    assert max(Counter(calls).values()) == 1, "an attempt was called twice"
    assert set(calls) <= {f"{intent_id}/{n}" for intent_id in scene.table.rows for n in (1, 2, 3)}
    started = Counter(intent_id for intent_id, _ in scene.table.starts)
    for intent_id, count in Counter(key.rpartition("/")[0] for key in calls).items():
        assert count <= started[intent_id] <= 3
    for row in scene.table.rows.values():
        known = [attempt for attempt in row.attempts if attempt.error != OUTCOME_UNKNOWN]
        assert len(known) <= len([key for key in calls if key.rpartition("/")[0] == row.intent_id])
        assert row.status is not Status.PENDING
