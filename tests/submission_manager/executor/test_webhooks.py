"""The leader's webhooks: told after the end, once, by whoever leads then."""

from __future__ import annotations

import asyncio

from submission_manager.executor.webhooks import WebhookSettings
from submission_manager.model.intents import Status, WebhookStatus
from submission_manager.ports import Over
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import Scene, counted, with_webhook


@virtual
async def test_the_webhook_is_told_after_the_end_and_recorded() -> None:
    scene = Scene()
    one = await (await scene.instance()).start()
    scene.table.submit("x", with_webhook())
    await scene.until(lambda: scene.table.rows["x"].webhook_status is WebhookStatus.DELIVERED)
    await asyncio.sleep(100)
    assert one.receiver.told == ["x"]
    assert scene.table.rows["x"].status is Status.ACCEPTED


@virtual
async def test_a_receiver_that_hangs_holds_up_no_attempt_and_is_given_up() -> None:
    scene = Scene()
    one = await scene.instance()
    one.receiver.gate = asyncio.Event()
    await one.start()
    for number in range(20):
        scene.table.submit(f"x{number}", with_webhook())
    await scene.until(lambda: scene.are_over(*scene.table.rows), limit_s=2)
    assert len(one.receiver.told) == 4
    await scene.until(
        lambda: all(row.webhook_status is WebhookStatus.FAILED for row in scene.table.rows.values()), limit_s=600
    )
    assert sorted(one.receiver.told) == sorted(scene.table.rows)


@virtual
async def test_a_webhook_owed_by_a_leader_that_died_is_told_by_the_next() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.reached["record_webhook"], scene.table.gates["record_webhook"] = asyncio.Event(), asyncio.Event()
    await one.start()
    scene.table.submit("x", with_webhook())
    await scene.table.reached["record_webhook"].wait()
    one.die()
    del scene.table.gates["record_webhook"]
    two = await (await scene.instance("b")).start()
    await scene.until(lambda: scene.table.rows["x"].webhook_status is WebhookStatus.DELIVERED)
    assert two.receiver.told == ["x"]


@virtual
async def test_a_webhook_under_way_when_the_lease_is_lost_is_not_recorded() -> None:
    scene = Scene()
    one = await scene.instance()
    one.receiver.gate = asyncio.Event()
    await one.start()
    scene.table.submit("x", with_webhook())
    await one.receiver.heard.wait()
    (await one.leads()).lost("test")
    await asyncio.sleep(0.1)
    one.receiver.gate.set()
    await asyncio.sleep(0.1)
    assert scene.table.rows["x"].webhook_status is WebhookStatus.PENDING
    assert counted(one.counts.fenced_out.labels("webhook")) == 1


@virtual
async def test_a_webhook_that_cannot_be_recorded_for_now_is_told_again_by_a_later_sweep() -> None:
    scene = Scene()
    one = await scene.instance()
    scene.table.gates["record_webhook"] = asyncio.Event()
    await one.start()
    scene.table.submit("x", with_webhook())
    await scene.until(lambda: "webhook_not_recorded" in one.facts.names(), limit_s=12)
    scene.table.gates["record_webhook"].set()
    await scene.until(lambda: scene.table.rows["x"].webhook_status is WebhookStatus.DELIVERED, limit_s=31)
    assert one.receiver.told == ["x", "x"]
    assert (await one.leads()).epoch == 1


@virtual
async def test_a_sweep_whose_answer_is_old_does_not_repeat_what_was_told_meanwhile() -> None:
    scene = Scene()
    one = await scene.instance(webhooks=WebhookSettings(sweep_every_s=1.0))
    owed = scene.table.owed_webhooks
    gate = asyncio.Event()
    answers: list[list[Over]] = []

    async def slow(limit: int, limit_s: float) -> list[Over]:
        answer = await owed(limit, limit_s)
        if answer:
            answers.append(answer)
            await gate.wait()
        return answer

    scene.table.owed_webhooks = slow  # type: ignore[method-assign]
    one.receiver.gate = asyncio.Event()
    await one.start()
    scene.table.submit("x", with_webhook())
    await scene.until(lambda: bool(answers))
    one.receiver.gate.set()
    await scene.until(lambda: scene.table.rows["x"].webhook_status is WebhookStatus.DELIVERED)
    gate.set()
    await asyncio.sleep(5)
    assert one.receiver.told == ["x"]


@virtual
async def test_more_owed_webhooks_than_one_sweep_reads_are_all_told_once() -> None:
    scene = Scene()
    for number in range(500):
        scene.table.submit(f"x{number}", with_webhook())
        scene.table.rows[f"x{number}"].status = Status.ACCEPTED
    one = await scene.instance(webhooks=WebhookSettings(sweep_rows=30, waiting_max=40))
    await one.start()
    await scene.until(
        lambda: all(row.webhook_status is WebhookStatus.DELIVERED for row in scene.table.rows.values()), limit_s=29
    )
    assert len(one.receiver.told) == 500
