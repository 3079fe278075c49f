"""A gateway for tests and demonstrations: answers as a provider would, counts every call, and can misbehave.

A word in the message (HANG, GARBAGE, ERROR, LONG, FAIL, SILENT) selects the answer to that call; the options make a
share of all calls slow, hang, fail or answer nonsense. With a record file, each call is appended to it as one JSON line
before it is answered, so that calls can be compared with the starts in the database.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from submission_manager.http import refusals
from submission_manager.http.refusals import Page, PageRoute, Refused, send_answer, send_refusal
from submission_manager.http.requests import ClientGone, read_body

BODY_BYTES_MAX = 1 << 20
BODY_LIMIT_S = 10.0
HANG_S = 3600.0
LONG_REASON = "because_" * 1000
HTML = b"<html>It works!</html>"

#: Returns the reason why it rejects a message, or None.
Provider = Callable[[dict[str, Any]], str | None]

HANG, GARBAGE, ERROR, LONG, FAIL, SILENT = "HANG", "GARBAGE", "ERROR", "LONG", "FAIL", "SILENT"


@dataclass(frozen=True)
class Behaviour:
    """How the gateway treats all calls. Shares are fractions from 0 to 1; the seed makes a run repeatable."""

    delay_min_s: float = 0.0
    delay_max_s: float = 0.0
    hang_share: float = 0.0
    garbage_share: float = 0.0
    error_share: float = 0.0
    seed: int | None = None


class Calls:
    """Counts the calls that the gateway received, by Idempotency-Key and by intent."""

    def __init__(self, record: str | None = None) -> None:
        self.by_key: Counter[str] = Counter()
        self.by_intent: Counter[str] = Counter()
        # One write per line to a file opened for appending: no line is cut, even if the process is killed.
        self._file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if record else None

    def count(self, key: str, path: str, said: dict[str, Any]) -> None:
        intent_id, _, attempt = key.rpartition("/")
        self.by_key[key] += 1
        self.by_intent[intent_id] += 1
        if self._file is not None:
            line = {
                "at": dt.datetime.now(dt.UTC).isoformat(), "key": key, "intentId": intent_id,
                "attemptNumber": int(attempt) if attempt.isdigit() else None, "path": path,
                "referenceId": said.get("referenceId"), "call": self.by_key[key],
            }  # fmt: skip
            os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class FakeGateway:
    """The fake gateway as an ASGI application: POST /sms/send, POST /push/send, GET /calls, GET /healthz."""

    def __init__(self, behaviour: Behaviour | None = None, record: str | None = None) -> None:
        self._behaviour = behaviour or Behaviour()
        self._random = random.Random(self._behaviour.seed)
        self.calls = Calls(record)
        self._router = Router(
            [
                Route("/sms/send", _Taker(self, sms), methods=["POST"]),
                Route("/push/send", _Taker(self, push), methods=["POST"]),
                Route("/calls", PageRoute(self._told), methods=["GET"]),
                Route("/healthz", PageRoute(_alive), methods=["GET"]),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except Refused as refused:
            await send_refusal(refused, receive, send)
        except HTTPException as error:
            await send_refusal(refusals.of_routing(error), receive, send)
        except ClientGone:
            return

    async def take(self, provider: Provider, scope: Scope, receive: Receive, send: Send) -> None:
        key = next((value for name, value in scope["headers"] if name == b"idempotency-key"), b"").decode("latin-1")
        said = _object(await read_body(scope, receive, BODY_BYTES_MAX, BODY_LIMIT_S))
        self.calls.count(unquote(key), scope["path"], said)
        await self._delay()
        await self._answer(said, provider, receive, send)

    async def _delay(self) -> None:
        behaviour = self._behaviour
        if behaviour.delay_max_s > 0:
            await asyncio.sleep(self._random.uniform(behaviour.delay_min_s, behaviour.delay_max_s))

    async def _answer(self, said: dict[str, Any], provider: Provider, receive: Receive, send: Send) -> None:
        match self._script(said):
            case "HANG":
                await _until_gone(receive)
            case "GARBAGE":
                await send_answer(send, 200, HTML, b"text/html")
            case "ERROR":
                raise Refused(500, "provider_down", "The provider is down.")
            case "SILENT":
                await send_answer(send, 200, _encoded({"referenceId": said.get("referenceId"), "status": "rejected"}))
            case "LONG":
                await send_answer(send, 200, _reply(said, LONG_REASON))
            case _:
                await send_answer(send, 200, _reply(said, provider(said)))

    def _script(self, said: dict[str, Any]) -> str | None:
        words = _words(said)
        for word in (HANG, GARBAGE, ERROR, LONG, SILENT):
            if word in words:
                return word
        behaviour, drawn = self._behaviour, self._random.random()
        for word, share in (
            (HANG, behaviour.hang_share),
            (GARBAGE, behaviour.garbage_share),
            (ERROR, behaviour.error_share),
        ):
            if drawn < share:
                return word
            drawn -= share
        return None

    def _told(self) -> Page:
        calls = self.calls
        told = {"calls": calls.by_key.total(), "byKey": calls.by_key, "byIntent": calls.by_intent}
        return 200, _encoded(told), b"application/json"


class _Taker:
    """The ASGI application of one provider's path.

    It is an object, because the router takes a function for a request handler.
    """

    def __init__(self, gateway: FakeGateway, provider: Provider) -> None:
        self._gateway, self._provider = gateway, provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gateway.take(self._provider, scope, receive, send)


def _alive() -> Page:
    return 200, b"ok", b"text/plain"


# --- the provider ---


def sms(said: dict[str, Any]) -> str | None:
    """Return the reason why the provider rejects the message, or None if it accepts the message."""
    to, message = said.get("to"), said.get("message")
    if not _is_text(said.get("referenceId")) or not isinstance(to, str) or not isinstance(message, str):
        return "invalid_request"
    if not (to.removeprefix("+").isascii() and to.removeprefix("+").isdigit()):
        return "invalid_recipient"
    if not message.strip():
        return "invalid_message"
    return "provider_failure" if FAIL in message else None


def push(said: dict[str, Any]) -> str | None:
    token = said.get("token")
    if not _is_text(said.get("referenceId")) or not _is_text(token):
        return "invalid_request"
    if "UNREGISTERED" in str(token):
        return "unregistered_token"
    return "provider_failure" if FAIL in _words(said) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _words(said: dict[str, Any]) -> str:
    return " ".join(str(said.get(name, "")) for name in ("message", "title", "body"))


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _reply(said: dict[str, Any], reason: str | None) -> bytes:
    answer: dict[str, Any] = {"referenceId": said.get("referenceId"), "status": "rejected" if reason else "accepted"}
    return _encoded(answer | ({"reason": reason} if reason else {"gatewayMessageId": secrets.token_hex(8)}))


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


async def _until_gone(receive: Receive) -> None:
    async with asyncio.timeout(HANG_S):
        while (await receive())["type"] != "http.disconnect":
            pass
