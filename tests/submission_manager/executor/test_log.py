"""What an operator can read of attempts and webhooks that failed."""

import asyncio
import logging
from typing import Any

from submission_manager.cli.serve import LEVELS
from submission_manager.model.intents import WebhookStatus
from submission_manager.model.outcomes import Answer, Outcome
from tests.fencehold.testing.simulation.on_virtual_time import virtual
from tests.submission_manager.executor.scene import ACCEPTED, Instance, Scene, at_gateway, with_webhook


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
async def test_a_webhook_client_that_overruns_its_limit_is_told_in_the_clients_own_words() -> None:
    scene = Scene()
    one = await scene.instance()
    one.receiver.gate = asyncio.Event()
    await one.start()
    scene.table.submit("x", with_webhook())
    await scene.until(lambda: "webhook_failed" in one.facts.names())
    told = [fields for event, fields in one.facts.told if event == "webhook_failed"]
    assert [fields["error"] for fields in told] == ["webhook: no answer within 10 s"]


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
async def test_a_failing_gateway_is_told_at_once_and_then_once_a_minute_with_counts() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answer = Outcome(Answer.ERROR, error="HTTP 500")
    one.gateway.answers["good"] = ACCEPTED
    await one.start()
    scene.table.submit("first")
    await scene.until(lambda: "attempt_failed" in one.facts.names())
    (told,) = failures(one)
    assert (told["gateway"], told["intent_id"], told["attempt_number"], told["error"]) == (
        "http://sms", "first", 1, "HTTP 500",
    )  # fmt: skip
    assert (told["failures"], told["attempts"]) == (1, 1)
    for name in [*(f"x{number}" for number in range(99)), "good"]:
        scene.table.submit(name)
    await asyncio.sleep(61)
    assert [(each["failures"], each["attempts"]) for each in failures(one)[1:]] == [(299, 300)]
    await asyncio.sleep(600)
    assert len(failures(one)) == 2, "a minute without a failure is not told of"


@virtual
async def test_each_gateway_is_told_of_by_its_own_name_and_without_its_password() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answer = Outcome(Answer.REJECTED, reason="provider_failure")
    await one.start()
    for number, url in enumerate(["http://user:hunter2@a:1/x/?key=hunter2", "https://b"]):
        scene.table.submit(f"x{number}", at_gateway(url))
    await scene.until(lambda: len(failures(one)) == 2)
    assert {(told["gateway"], told["reason"]) for told in failures(one)} == {
        ("http://a:1/x", "provider_failure"), ("https://b", "provider_failure"),
    }  # fmt: skip
    assert "hunter2" not in str(one.facts.told) + str(one.counts.of)


@virtual
async def test_a_rejection_that_is_final_is_no_failure_of_the_gateway() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answer = Outcome(Answer.REJECTED, reason="invalid_recipient")
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))
    await asyncio.sleep(1)
    assert "attempt_failed" not in one.facts.names()
    assert one.counts.of["http://sms rejected"] == 1


@virtual
async def test_what_was_not_yet_told_of_a_failing_gateway_is_told_at_the_end() -> None:
    scene = Scene()
    one = await scene.instance()
    one.gateway.answer = Outcome(Answer.ERROR, error="HTTP 500")
    await one.start()
    scene.table.submit("x")
    await scene.until(lambda: scene.are_over("x"))
    await one.leadership.stop()
    assert one.run is not None
    await one.run
    assert [told["failures"] for told in failures(one)] == [1, 2]


def test_it_is_a_warning_that_a_gateway_fails() -> None:
    assert LEVELS["attempt_failed"] == logging.WARNING


def failures(one: Instance) -> list[dict[str, Any]]:
    return [fields for event, fields in one.facts.told if event == "attempt_failed"]
