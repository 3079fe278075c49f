"""What an operator can read of attempts and webhooks that failed."""

import asyncio

from submission_manager.model.intents import WebhookStatus
from submission_manager.model.outcomes import Answer, Outcome
from tests.submission_manager.executor_scene import Scene, with_webhook
from tests.unit.on_virtual_time import virtual


@virtual
async def test_a_webhook_that_failed_is_told_with_its_intent_its_target_and_why() -> None:
    scene = Scene()
    one = await scene.instance()
    one.receiver.error = "webhook answered 500"
    await one.start()
    scene.table.submit("x", with_webhook())
    await scene.until(lambda: scene.table.rows["x"].webhook_status is WebhookStatus.FAILED)
    await asyncio.sleep(1)
    told = [fields for event, fields in one.facts.told if event == "webhook_failed"]
    target = with_webhook().submission_target
    assert told == [{"intent_id": "x", "submission_target": target, "error": one.receiver.error, "failures": 1}]


@virtual
async def test_a_receiver_that_is_away_does_not_flood_the_log() -> None:
    scene = Scene()
    one = await scene.instance()
    one.receiver.error = "webhook: refused"
    await one.start()
    for number in range(50):
        scene.table.submit(f"x{number}", with_webhook())
    await scene.until(lambda: all(row.webhook_status is WebhookStatus.FAILED for row in scene.table.rows.values()))
    await asyncio.sleep(2)
    assert one.facts.names().count("webhook_failed") < 5
    scene.table.submit("last", with_webhook())
    await scene.until(lambda: scene.table.rows["last"].webhook_status is WebhookStatus.FAILED)
    await asyncio.sleep(1)
    told = [fields for event, fields in one.facts.told if event == "webhook_failed"]
    assert sum(fields["failures"] for fields in told) == 51


@virtual
async def test_an_attempt_that_failed_is_told_with_its_number_and_why() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answers["x"] = Outcome(Answer.ERROR, error="HTTP 500")
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: "attempt_failed" in one.facts.names())
    told = next(fields for event, fields in one.facts.told if event == "attempt_failed")
    assert (told["intent_id"], told["attempt_number"], told["error"]) == ("x", 1, "HTTP 500")
