"""Every no of the HTTP face: its status, its code, its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.types import Send

from fencehold.model.errors import ConfigurationError, FenceholdError, Uncertain
from submission_manager.http import wire

Headers = Mapping[str, str]
NONE: Headers = {}
CLOSE: Headers = {"connection": "close"}  # what the client still sends is not read
RETRY: Headers = {"retry-after": "1"}


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
    return Refused(413, "body_too_large", f"The body has more than {limit_bytes} bytes.", headers=CLOSE)


def too_slow(limit_s: float) -> Refused:
    return Refused(408, "request_timeout", f"The body did not arrive within {limit_s:g} s.", headers=CLOSE)


def conflict(intent_id: str, existing: str, incoming: str) -> Refused:
    return Refused(
        409, "idempotency_conflict", "This intentId stands for another submission: its target or its payload differs.",
        details={"intentId": intent_id, "existingTarget": existing, "incomingTarget": incoming},
    )  # fmt: skip


def of_store(error: FenceholdError) -> Refused:
    """Database trouble is never a no to what was asked. The driver's own words stay in the log."""
    match error:
        case Uncertain():
            message = "The database gave no answer: it may or may not be stored. Send it again, unchanged."
            return Refused(503, "database_uncertain", message, headers=RETRY)
        case ConfigurationError():
            return Refused(503, "not_ready", "The database cannot be used as it is; the log says why.", headers=RETRY)
    return Refused(503, "database_unavailable", "The database cannot be reached. Nothing was changed.", headers=RETRY)


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


async def send_refusal(refused: Refused, send: Send) -> None:
    await send_answer(
        send, refused.status, wire.encode(wire.Error(refused.fault)), b"application/json", refused.headers
    )


async def send_answer(
    send: Send, status: int, body: bytes, content_type: bytes = b"application/json", headers: Headers = NONE
) -> None:  # fmt: skip
    lines = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    lines += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
