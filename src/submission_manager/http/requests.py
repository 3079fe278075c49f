"""Reads a client's request within limits, and raises Refused with a code if it is invalid."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from submission_manager.http import refusals, wire
from submission_manager.model.intents import INTENT_ID_CHARS_MAX

WAIT_SECONDS_MAX = 30
# The longest wait: proxies commonly give up after 30 s, and the answer must arrive before.
WAIT_LONGEST_S = 28.0
TARGET_CHARS_MAX = 200

_decode = msgspec.json.Decoder(wire.Submission).decode
_KEYS = (b'"intentId"', b'"submissionTarget"', b'"payload"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WHOLE = re.compile(r"[0-9]+", re.ASCII)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class ClientGone(Exception):
    """Raised when the client has disconnected: there is nobody to answer."""


async def read_body(scope: Scope, receive: Receive, limit_bytes: int, limit_s: float) -> bytes:
    """Read the body, with or without a Content-Length. Reads nothing beyond the limit.

    Raises Refused if it has more than `limit_bytes` or takes longer than `limit_s`, ClientGone on a disconnect.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and (len(value) > 18 or int(value) > limit_bytes):
            raise refusals.too_large(limit_bytes)
    try:
        async with asyncio.timeout(limit_s):
            return await _received(receive, limit_bytes)
    except TimeoutError:
        raise refusals.too_slow(limit_s) from None


async def _received(receive: Receive, limit_bytes: int) -> bytes:
    body = b""
    rest: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        length += len(chunk)
        if length > limit_bytes:
            raise refusals.too_large(limit_bytes)
        if not body:
            body = chunk
        else:
            rest.append(chunk)
        if not message.get("more_body", False):
            return b"".join([body, *rest]) if rest else body


def submission(body: bytes) -> tuple[str, str, bytes | None]:
    """Decode a submission. Returns intentId, submissionTarget, and the payload as sent or None.

    Raises Refused if the submission is invalid.
    """
    try:
        if not body.isascii():
            body.decode()  # the decoder does not look inside a payload
        asked = _decode(body)
    except UnicodeDecodeError:
        raise refusals.invalid("The body is not UTF-8.") from None
    except msgspec.ValidationError as error:
        raise refusals.invalid(f"The body is not a submission: {error}.") from None
    except RecursionError:
        raise refusals.invalid("The body is nested too deeply.") from None
    except msgspec.DecodeError as error:
        why = "an escape is half of a surrogate pair" if _has_half_a_pair(body) else error
        raise refusals.invalid(f"The body is not JSON: {why}.") from None
    _refuse_duplicates(body)
    payload = bytes(asked.payload)
    return (
        _name(asked.intent_id, "intentId", INTENT_ID_CHARS_MAX),
        _name(asked.submission_target, "submissionTarget", TARGET_CHARS_MAX),
        payload or None,
    )


def _has_half_a_pair(body: bytes) -> bool:
    r"""Return whether the body is valid JSON but not valid text: an escape such as \ud800 without its other half."""
    if not _HALF.search(body):
        return False
    try:
        json.dumps(json.loads(body, parse_int=str), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _refuse_duplicates(body: bytes) -> None:
    """Raise Refused if a field is given twice: different readers would use different ones."""
    if b"\\" not in body and all(body.count(key) < 2 for key in _KEYS):
        return
    last: list[tuple[str, Any]] = []

    def pairs(found: list[tuple[str, Any]]) -> None:
        nonlocal last
        last = found  # the outermost object is the last to be complete

    try:
        json.loads(body, object_pairs_hook=pairs, parse_int=str)  # as text: a number may have any number of digits
    except (ValueError, RecursionError):
        raise refusals.invalid("The body cannot be read.") from None
    names = [name for name, _ in last]
    for name in names:
        if names.count(name) > 1:
            raise refusals.invalid(f"The field {name} is given more than once.")


def _name(value: str, field: str, chars_max: int) -> str:
    name = value.strip()
    if not name:
        raise refusals.invalid(f"{field} is empty.")
    if len(name) > chars_max:
        raise refusals.invalid(f"{field} has more than {chars_max} characters.")
    if _CONTROL.search(name):
        raise refusals.invalid(f"{field} has control characters.")
    return name


def wait_seconds(query: bytes) -> float:
    """Return how long the client wants to wait for the first attempt or the end; 0: not at all.

    Raises Refused if invalid.
    """
    if not query:
        return 0.0
    given = [value for name, value in _pairs(query) if name == "waitSeconds"]
    if not given:
        return 0.0
    if len(given) > 1 or not _WHOLE.fullmatch(given[0]):
        raise refusals.invalid("waitSeconds must be a whole number, 0 or above, given once.")
    digits = given[0].lstrip("0") or "0"
    # A long number is not converted: with more than two digits it is above 30 anyway.
    return WAIT_LONGEST_S if len(digits) > 2 else min(float(digits), WAIT_LONGEST_S)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise refusals.invalid("The query cannot be read.") from None


def intent_path(scope: Scope) -> tuple[str, list[str]]:
    """Return the id after /v1/intents/, and the rest of the path.

    Uses the raw path: an id may hold an encoded slash.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    parts = raw.partition(b"?")[0].split(b"/")[3:]
    try:
        intent_id, *rest = [unquote_to_bytes(part).decode() for part in parts]
    except (UnicodeDecodeError, ValueError):
        raise refusals.not_found("") from None
    return intent_id.strip(), rest


def may_exist(intent_id: str) -> bool:
    """Return False for an id that can never have been stored: it need not be searched, and some databases refuse it."""
    return 0 < len(intent_id) <= INTENT_ID_CHARS_MAX and _CONTROL.search(intent_id) is None
