"""Sends the webhook of an ended intent to its contract's receiver: signed, within limits; never raises."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
from collections.abc import Mapping

import msgspec

from submission_manager.model.contracts import Webhook
from submission_manager.model.intents import ERROR_CHARS_MAX, Intent, Status
from submission_manager.outgoing import NoAnswer, Outgoing, header_text
from submission_manager.ports import Over

EVENT_TYPE = "intent.terminal"
ANSWER_BYTES_MAX = 4096  # only the status counts; the body is read so that the connection can be used again


class WebhookClient:
    """Sends webhooks (WebhookPort).

    Secrets are read from the environment when they are used, and appear in no error.
    """

    def __init__(self, outgoing: Outgoing, environment: Mapping[str, str] | None = None) -> None:
        self._outgoing = outgoing
        self._environment = os.environ if environment is None else environment

    async def send(self, over: Over, limit_s: float) -> str | None:
        if over.webhook is None:
            return "the contract has no webhook"
        body = body_of(over.intent)
        try:
            headers = self._headers(over.webhook, over.intent, body)
            answered = await self._outgoing.post(
                over.webhook.url, body, headers, limit_s=limit_s, body_bytes_max=ANSWER_BYTES_MAX
            )
        except NoAnswer as error:
            return f"webhook: {error}"[:ERROR_CHARS_MAX]
        return None if 200 <= answered.status_code < 300 else f"webhook answered {answered.status_code}"

    def _headers(self, webhook: Webhook, intent: Intent, body: bytes) -> dict[str, str]:
        ours = {
            "Content-Type": "application/json",
            "X-Setu-Event-Type": EVENT_TYPE,
            "X-Setu-Event-Id": header_text(intent.intent_id),
        }
        if webhook.secret_env is not None:
            ours["X-Setu-Signature"] = signature(self._secret(webhook.secret_env), body)
        taken = {name.lower() for name in ours} | {"x-setu-signature"}
        theirs = dict(webhook.headers) | {name: self._secret(var) for name, var in webhook.headers_env.items()}
        return {name: value for name, value in theirs.items() if name.lower() not in taken} | ours

    def _secret(self, variable: str) -> str:
        value = self._environment.get(variable, "")
        if not value:
            raise NoAnswer(f"the environment variable {variable} is not set, so nothing was sent")
        return value


def body_of(intent: Intent) -> bytes:
    """Return the webhook's body: the same bytes each time it is sent, because its time is when the intent ended."""
    ended_at = intent.completed_at and intent.completed_at.astimezone(dt.UTC)
    told = {
        "intentId": intent.intent_id, "submissionTarget": intent.submission_target,
        "createdAt": intent.created_at.astimezone(dt.UTC), "completedAt": ended_at, "status": intent.status,
    }  # fmt: skip
    if intent.status is Status.REJECTED and intent.rejected_reason is not None:
        told["rejectedReason"] = intent.rejected_reason
    if intent.status is Status.EXHAUSTED and intent.exhausted_reason is not None:
        told["exhaustedReason"] = intent.exhausted_reason
    event = {"eventId": intent.intent_id, "eventType": EVENT_TYPE, "occurredAt": ended_at, "intent": told}
    return msgspec.json.encode(event)


def signature(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
