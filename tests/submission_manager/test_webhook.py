"""What a webhook's receiver gets, and what is told when it cannot be told."""

import asyncio
import datetime as dt
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from submission_manager.http.server import Listening
from submission_manager.model.contracts import Webhook
from submission_manager.model.intents import Intent, Status
from submission_manager.outgoing import Outgoing
from submission_manager.ports import Over
from submission_manager.webhook import WebhookClient

CREATED = dt.datetime(2026, 2, 2, 12, 0, 0, 500_000, tzinfo=dt.UTC)
ENDED = dt.datetime(2026, 2, 2, 14, 0, 3, tzinfo=dt.timezone(dt.timedelta(hours=2)))
ENVIRONMENT = {"SECRET": "hush", "TOKEN": "Bearer x"}


def over(webhook: Webhook | None, status: Status = Status.REJECTED, **fields: Any) -> Over:
    intent_id = fields.pop("intent_id", "a")
    return Over(Intent(intent_id, "sms.realtime", CREATED, status, 1, ENDED, **fields), webhook)


@asynccontextmanager
async def receiver(status: int = 204, *, hangs: bool = False) -> AsyncIterator[tuple[str, list[Any]]]:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        seen.append((scope["path"], scope["headers"], message["body"]))
        if hangs:
            await asyncio.sleep(60)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server = Listening(app, "127.0.0.1", 0, request_timeout_s=5, drain_timeout_s=1)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/hook", seen
    finally:
        await server.stop()


async def told(one: Over, limit_s: float = 5.0) -> str | None:
    async with aclosing(Outgoing()) as outgoing:
        return await WebhookClient(outgoing, ENVIRONMENT).send(one, limit_s)


async def test_the_receiver_gets_the_event_with_its_headers_and_signature():
    async with receiver() as (url, seen):
        hook = Webhook(url, {"X-A": "1", "content-type": "text/x"}, {"Authorization": "TOKEN"}, "SECRET")
        assert await told(over(hook, rejected_reason="invalid_recipient")) is None
    path, lines, body = seen[0]
    headers = dict(lines)
    assert len(headers) == len(lines)  # none of them twice
    assert path == "/hook"
    assert json.loads(body) == {
        "eventId": "a", "eventType": "intent.terminal", "occurredAt": "2026-02-02T12:00:03Z",
        "intent": {
            "intentId": "a", "submissionTarget": "sms.realtime", "createdAt": "2026-02-02T12:00:00.500000Z",
            "completedAt": "2026-02-02T12:00:03Z", "status": "rejected", "rejectedReason": "invalid_recipient",
        },
    }  # fmt: skip
    assert headers[b"x-setu-signature"].decode() == hmac.new(b"hush", body, hashlib.sha256).hexdigest()
    assert (headers[b"x-setu-event-type"], headers[b"x-setu-event-id"]) == (b"intent.terminal", b"a")
    assert (headers[b"x-a"], headers[b"authorization"]) == (b"1", b"Bearer x")
    assert headers[b"content-type"] == b"application/json"


async def test_reasons_are_there_only_when_they_apply():
    async with receiver() as (url, seen):
        for status, fields in (
            (Status.ACCEPTED, {"rejected_reason": "x", "exhausted_reason": "y"}),
            (Status.EXHAUSTED, {"exhausted_reason": "max_attempts"}),
        ):
            assert await told(over(Webhook(url), status, **fields)) is None
    intents = [json.loads(body)["intent"] for _, _, body in seen]
    assert [set(intent) & {"rejectedReason", "exhaustedReason"} for intent in intents] == [set(), {"exhaustedReason"}]
    assert b"x-setu-signature" not in dict(seen[0][1])


async def test_an_id_that_is_no_ascii_is_encoded_in_its_header():
    async with receiver() as (url, seen):
        assert await told(over(Webhook(url), intent_id="ü 5%")) is None
    assert dict(seen[0][1])[b"x-setu-event-id"] == b"%C3%BC 5%25"


@pytest.mark.parametrize("status", [300, 404, 500])
async def test_anything_but_2xx_is_a_failure_in_words(status):
    async with receiver(status) as (url, _):
        assert await told(over(Webhook(url))) == f"webhook answered {status}"


async def test_a_receiver_that_hangs_is_given_up_in_time():
    async with receiver(hangs=True) as (url, _):
        assert await told(over(Webhook(url)), limit_s=0.2) == "webhook: no answer within 0.2 s"


async def test_without_its_secret_nothing_is_sent_and_no_secret_is_told():
    async with receiver() as (url, seen):
        for hook in (Webhook(url, secret_env="MISSING"), Webhook(url, headers_env={"X": "MISSING"})):
            assert "MISSING is not set" in str(await told(over(hook)))
        assert seen == []
    assert await told(over(None)) == "the contract has no webhook"
    assert (
        await told(over(Webhook("http://u:hunter2@127.0.0.1:1/", {}, {}, "SECRET")))
        == "webhook: cannot connect (refused)"
    )
