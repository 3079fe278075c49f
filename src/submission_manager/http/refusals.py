"""Every refusal of the HTTP interface: its status, its code, its message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from fencehold import ConfigurationError, FenceholdError, Uncertain
from submission_manager.http import wire

Headers = Mapping[str, str]
#: Status, body and content type of an answer.
Page = tuple[int, bytes, bytes]
TOO_LARGE = 413
LINGER_S = 1.0
LINGER_BYTES_MAX = 16 * 1024 * 1024
NONE: Headers = {}
CLOSE: Headers = {"connection": "close"}  # the rest of the request is not read
RETRY: Headers = {"retry-after": "1"}
BACKLOG_RETRY: Headers = {"retry-after": "5"}


class Refused(Exception):
    def __init__(
        self, status: int, code: str, message: str, *, details: dict[str, Any] | None = None, headers: Headers = NONE
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.fault = wire.Fault(code, message, UNSET if details is None else details)
        self.headers = headers


def invalid(message: str, **details: Any) -> Refused:
    return Refused(400, "invalid_request", message, details=details or None)


def not_found(intent_id: str) -> Refused:
    return Refused(404, "not_found", "There is no intent of this id.", details={"intentId": intent_id})


def too_large(limit_bytes: int) -> Refused:
    return Refused(TOO_LARGE, "body_too_large", f"The body has more than {limit_bytes} bytes.", headers=CLOSE)


def too_slow(limit_s: float) -> Refused:
    return Refused(408, "request_timeout", f"The body did not arrive within {limit_s:g} s.", headers=CLOSE)


def conflict(intent_id: str, existing: str, incoming: str) -> Refused:
    message = "This intentId stands for another submission: its target differs, or its payload does, byte for byte."
    return Refused(
        409, "idempotency_conflict", message,
        details={"intentId": intent_id, "existingTarget": existing, "incomingTarget": incoming},
    )  # fmt: skip


def backlog_full(target: str, most: int) -> Refused:
    message = "As many intents of this target wait as it can finish in time. Nothing was stored; send it again later."
    details = {"submissionTarget": target, "maxBacklog": most}
    return Refused(429, "backlog_full", message, details=details, headers=BACKLOG_RETRY)


def of_store(error: FenceholdError, *, is_read: bool) -> Refused:
    """Return the refusal for a database error: always 503, never 404 or 409.

    The driver's own text goes only to the log.
    """
    match error:
        case Uncertain():
            message = "The database gave no answer: it may or may not be stored. Send it again, unchanged."
            if is_read:
                message = "The database gave no answer, so nothing is known. Ask again."
            return Refused(503, "database_uncertain", message, headers=RETRY)
        case ConfigurationError():
            return Refused(503, "not_ready", "The database cannot be used as it is; the log says why.", headers=RETRY)
    state = "is read-only at present" if error.code == "read_only" else "cannot be reached"
    return Refused(503, "database_unavailable", f"The database {state}. Nothing was changed.", headers=RETRY)


def of_routing(error: HTTPException) -> Refused:
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            return Refused(404, "not_found", "There is nothing at this path; see /docs.", headers=headers)
        case 405:
            message = f"This path takes {headers.get('Allow', 'other methods')}."
            return Refused(405, "method_not_allowed", message, headers=headers)
    return Refused(error.status_code, "http_error", error.detail, headers=headers)


INTERNAL = Refused(500, "internal_error", "A fault of the service itself; the log says more.")


async def send_refusal(refused: Refused, receive: Receive, send: Send) -> None:
    body = wire.encode(wire.Error(refused.fault))
    if refused.status != TOO_LARGE:
        await send_answer(send, refused.status, body, headers=refused.headers)
        return
    await send(_head(refused.status, body, b"application/json", refused.headers))
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await _discard(receive)
    await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    """Read and discard some of the unread body: otherwise closing resets the connection and loses the answer."""
    left = LINGER_BYTES_MAX
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))


async def send_answer(
    send: Send, status: int, body: bytes, content_type: bytes = b"application/json", headers: Headers = NONE
) -> None:  # fmt: skip
    await send(_head(status, body, content_type, headers))
    await send({"type": "http.response.body", "body": body})


class PageRoute:
    """A route that answers every request with the page that `make` returns."""

    def __init__(self, make: Callable[[], Page], headers: Headers = NONE) -> None:
        self._make, self._headers = make, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, *self._make(), self._headers)


def _head(status: int, body: bytes, content_type: bytes, headers: Headers) -> dict[str, Any]:
    lines = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    lines += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": lines}
