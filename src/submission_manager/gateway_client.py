"""Makes one gateway call and turns the answer into an Outcome. The gateway decides; its answer is not trusted."""

from __future__ import annotations

import msgspec

from submission_manager.model.contracts import GatewayType
from submission_manager.model.intents import ERROR_CHARS_MAX, REASON_CHARS_MAX
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.outgoing import Answered, NoAnswer, Outgoing, header_text
from submission_manager.ports import Started

ANSWER_BYTES_MAX = 64 * 1024
SHOWN_CHARS_MAX = 60
PATHS = {GatewayType.SMS: "/sms/send", GatewayType.PUSH: "/push/send"}


class _Reply(msgspec.Struct):
    """A gateway's answer as decoded.

    The fields accept any type: a wrong type gets our own error text, not the decoder's.
    """

    status: object = None
    reason: object = None


_decode = msgspec.json.Decoder(_Reply).decode


class GatewayClient:
    """Implements GatewayPort: never raises, never repeats a call, and never puts an address into an error text."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    async def submit(self, started: Started, limit_s: float) -> Outcome:
        url = started.contract.gateway_url.rstrip("/") + PATHS[started.contract.gateway_type]
        headers = {"Content-Type": "application/json", "Idempotency-Key": header_text(started.key)}
        try:
            answered = await self._outgoing.post(
                url, started.payload or b"", headers, limit_s=limit_s, body_bytes_max=ANSWER_BYTES_MAX
            )
        except NoAnswer as error:
            return failed(f"gateway: {error}")
        return classify(answered)


def classify(answered: Answered) -> Outcome:
    problem = _problem(answered)
    if problem is not None:
        return failed(f"gateway answered {problem}")
    try:
        reply = _decode(answered.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return failed("gateway answered with something that is not a JSON object")
    return _judged(reply)


def _problem(answered: Answered) -> str | None:
    """Return what is wrong with an answer, in words, if its body is not to be read; None if the body is to be read."""
    if not 200 <= answered.status_code < 300:
        return str(answered.status_code)
    if len(answered.body) > ANSWER_BYTES_MAX:
        return f"with more than {ANSWER_BYTES_MAX} bytes"
    return "in an encoding that was not asked for" if answered.is_encoded else None


def _judged(reply: _Reply) -> Outcome:
    match reply.status:
        case "accepted":
            return Outcome(Answer.ACCEPTED)
        case "rejected":
            reason = _text(reply.reason)
            return Outcome(Answer.REJECTED, reason=reason) if reason else failed("gateway rejected without a reason")
        case None | "":
            return failed("gateway answered without a status")
    shown = _text(reply.status)[:SHOWN_CHARS_MAX] or f"a {type(reply.status).__name__}"
    return failed(f"gateway answered with an unknown status: {shown}")


def failed(error: str) -> Outcome:
    return Outcome(Answer.ERROR, error=error[:ERROR_CHARS_MAX])


def _text(value: object) -> str:
    """Return `value` cut to the maximum length, without characters that a database refuses; empty if it is no text."""
    if not isinstance(value, str):
        return ""
    return "".join(c for c in value[:REASON_CHARS_MAX] if c != "\0" and not "\ud800" <= c <= "\udfff").strip()
