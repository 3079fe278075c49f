"""The JSON types of requests and answers; the OpenAPI document is built from the same types."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from submission_manager.model import intents
from submission_manager.model.intents import INTENT_ID_CHARS_MAX, Status

IntentId = Annotated[
    str,
    Meta(
        description="Chosen by the client: the idempotency key. Blanks at either end are cut off, then "
        f"1 to {INTENT_ID_CHARS_MAX} characters, none of them a control character; upper and lower case differ.",
        examples=["order-7-sms"],
    ),
]
Target = Annotated[
    str, Meta(description="The name of a contract in the registry; blanks cut off.", examples=["sms.realtime"])
]
When = Annotated[dt.datetime, Meta(description="RFC 3339, UTC; the database's clock.")]
StatusName = Literal["pending", "accepted", "rejected", "exhausted"]


class Submission(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body of a client's request to store an intent."""

    intent_id: IntentId
    submission_target: Target
    payload: Annotated[
        msgspec.Raw, Meta(description="Any JSON; goes to the gateway byte for byte. Absent and null differ.")
    ] = msgspec.field(default_factory=msgspec.Raw)


class Intent(msgspec.Struct, rename="camel"):
    """An intent in an answer: `pending`, then exactly one of the other statuses, for ever.

    `accepted` means that the provider has taken the message.
    """

    intent_id: IntentId
    submission_target: Target
    created_at: When
    status: StatusName
    completed_at: When | UnsetType = UNSET
    rejected_reason: str | UnsetType = UNSET
    exhausted_reason: str | UnsetType = UNSET


class Attempt(msgspec.Struct, rename="camel"):
    """One gateway call in an answer, as it was recorded; empty fields are left out."""

    attempt_number: int
    started_at: When
    finished_at: When
    outcome_status: str | UnsetType = UNSET
    outcome_reason: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class History(msgspec.Struct):
    intent: Intent
    attempts: list[Attempt]


class Fault(msgspec.Struct):
    """The error in an answer: `code` is for programs, `message` for people."""

    code: str
    message: str
    details: dict[str, Any] | UnsetType = UNSET


class Error(msgspec.Struct):
    error: Fault


encode = msgspec.json.Encoder().encode


def intent(one: intents.Intent) -> Intent:
    return Intent(
        one.intent_id, one.submission_target, _utc(one.created_at), one.status.value,
        completed_at=UNSET if one.completed_at is None else _utc(one.completed_at),
        rejected_reason=(one.rejected_reason or UNSET) if one.status is Status.REJECTED else UNSET,
        exhausted_reason=(one.exhausted_reason or UNSET) if one.status is Status.EXHAUSTED else UNSET,
    )  # fmt: skip


def attempt(one: intents.Attempt) -> Attempt:
    return Attempt(
        one.attempt_number, _utc(one.started_at), _utc(one.finished_at),
        one.outcome_status or UNSET, one.outcome_reason or UNSET, one.error or UNSET,
    )  # fmt: skip


def _utc(when: dt.datetime) -> dt.datetime:
    return when if when.tzinfo is dt.UTC else when.astimezone(dt.UTC)
