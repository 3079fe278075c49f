"""Intents and attempts as values; all times are the database's own."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass

from submission_manager.model.contracts import Contract

INTENT_ID_CHARS_MAX = 200
REASON_CHARS_MAX = 200  # of a gateway's reason; longer ones are cut, never refused
ERROR_CHARS_MAX = 1000


class Status(enum.StrEnum):
    """The status of an intent: first `pending`, then exactly one of the others for ever."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EXHAUSTED = "exhausted"


class Exhausted(enum.StrEnum):
    ONE_SHOT = "one_shot"
    MAX_ATTEMPTS = "max_attempts"
    DEADLINE_EXCEEDED = "deadline_exceeded"


class WebhookStatus(enum.StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NewIntent:
    """A client's checked submission, with the contract as it is now. `payload` None or empty: there was none."""

    intent_id: str
    payload: bytes | None
    contract: Contract


@dataclass(frozen=True, slots=True)
class Intent:
    """One intent, as shown to clients."""

    intent_id: str
    submission_target: str
    created_at: dt.datetime
    status: Status
    attempt_count: int
    completed_at: dt.datetime | None = None
    rejected_reason: str | None = None
    exhausted_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One gateway call, as recorded. Empty fields are None."""

    attempt_number: int
    started_at: dt.datetime
    finished_at: dt.datetime
    outcome_status: str | None = None
    outcome_reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many intents are late, by the database's clock. Counts only the longest due, up to the caller's maximum."""

    overdue: int  # pending, and due for longer than the caller's limit
    oldest_due_s: float  # how long the longest due intent has been due; 0: none is due
    past_deadline: int  # pending, past their deadline, and no attempt under way
