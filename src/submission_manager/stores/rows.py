"""Converts rows to values and values to parameters. Texts from a gateway or a receiver are cut to their column here."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from fencehold import ConfigurationError
from fencehold.own_tables import Row
from submission_manager.model.contracts import Contract, GatewayType, Policy, Webhook
from submission_manager.model.intents import (
    INTENT_ID_CHARS_MAX,
    Attempt,
    Backlog,
    Intent,
    NewIntent,
    Status,
    WebhookStatus,
)
from submission_manager.ports import Due, LeftOpen, Over, Submission, Submitted

OF_SCHEDULE = itemgetter(
    "intent_id", "next_attempt_at", "last_modified_at", "gateway_url", "submission_target", "created_at", "deadline_s"
)


def intent(row: Row) -> Intent:
    return Intent(
        row["intent_id"], row["submission_target"], row["created_at"], Status(row["status"]), row["attempt_count"],
        row["completed_at"], rejected_reason=row["final_outcome_reason"] if row["status"] == Status.REJECTED else None,
        exhausted_reason=row["exhausted_reason"],
    )  # fmt: skip


def history(found: list[Row]) -> tuple[Intent, list[Attempt]] | None:
    if not found:
        return None
    return intent(found[0]), [attempt(row) for row in found if row["attempt_number"] is not None]


def attempt(row: Row) -> Attempt:
    return Attempt(
        row["attempt_number"], row["started_at"], row["finished_at"], row["outcome_status"], row["outcome_reason"],
        row["error"],
    )  # fmt: skip


def over(row: Row) -> Over:
    return Over(intent(row), webhook(row))


def backlog(row: Row) -> Backlog:
    oldest_s = 0.0 if row["oldest_at"] is None else (row["now"] - row["oldest_at"]).total_seconds()
    return Backlog(row["overdue"], max(0.0, oldest_s), row["past_deadline"])


def dues(found: list[Row]) -> list[Due]:
    """Return rows of the schedule as values. A statement returns `deadline_s` only if the policy is a deadline.

    All rows with the same gateway or target share one string: up to a million of them are kept in memory.
    """
    texts: dict[str, str] = {}
    due = []
    for intent_id, due_at, modified_at, url, target, created_at, deadline_s in map(OF_SCHEDULE, found):
        until = None if deadline_s is None else created_at + dt.timedelta(seconds=deadline_s)
        due.append(
            Due(intent_id, due_at, modified_at, texts.setdefault(url, url), texts.setdefault(target, target), until)
        )
    return due


def webhook(row: Row) -> Webhook | None:
    if row["webhook_url"] is None:
        return None
    headers, headers_env = (json.loads(row[name] or "{}") for name in ("webhook_headers", "webhook_headers_env"))
    return Webhook(row["webhook_url"], headers, headers_env, row["webhook_secret_env"])


def contract(row: Row) -> Contract:
    return Contract(
        row["submission_target"], GatewayType(row["gateway_type"]), row["gateway_url"], Policy(row["policy"]),
        tuple(json.loads(row["terminal_outcomes"])), max_acceptance_seconds=row["max_acceptance_seconds"],
        max_attempts=row["max_attempts"], webhook=webhook(row),
    )  # fmt: skip


def contract_params(given: Contract) -> Mapping[str, Any]:
    hook = given.webhook
    return {
        "target": given.submission_target, "gateway_type": given.gateway_type.value, "gateway_url": given.gateway_url,
        "policy": given.policy.value, "max_acceptance_seconds": given.max_acceptance_seconds,
        "max_attempts": given.max_attempts, "terminal_outcomes": json.dumps(list(given.terminal_outcomes)),
        "webhook_url": hook and hook.url, "webhook_headers": hook and json.dumps(dict(hook.headers)),
        "webhook_headers_env": hook and json.dumps(dict(hook.headers_env)),
        "webhook_secret_env": hook and hook.secret_env, "webhook_status": hook and WebhookStatus.PENDING.value,
    }  # fmt: skip


def payload_hash(payload: bytes | None) -> bytes:
    return hashlib.sha256(payload or b"").digest()


def known(new: NewIntent, row: Row) -> Submitted:
    """Return the result for an id that is stored already: KNOWN if target and payload are the same, else CONFLICT."""
    is_same = is_repeat(new.contract.submission_target, new.payload, row)
    return Submitted(Submission.KNOWN if is_same else Submission.CONFLICT, intent(row))


def is_repeat(target: str, payload: bytes | None, row: Row) -> bool:
    return row["submission_target"] == target and bytes(row["payload_hash"]) == payload_hash(payload)


def created(new: NewIntent, row: Row) -> Submitted:
    fresh = Intent(new.intent_id, new.contract.submission_target, row["created_at"], Status.PENDING, 0)
    return Submitted(Submission.CREATED, fresh)


def left_open(found: list[Row]) -> LeftOpen:
    first = [(row["intent_id"], row["attempt_number"]) for row in found]
    return LeftOpen(found[0]["attempts"] if found else 0, first)


def owner(found: list[Row], lease_name: str) -> str | None:
    """Return the lease that owns the tables, from the rows of the statement `owner`.

    None means that nobody owns them, so that this lease may become the owner. Tables of an older version have no
    recorded owner. If other leases exist and `lease_name` is not among them, one of them is returned, so that a new
    lease does not get the tables.
    """
    recorded = [str(row["lease_name"]) for row in found if row["is_owner"]]
    others = sorted(str(row["lease_name"]) for row in found if not row["is_owner"])
    if recorded:
        return recorded[0]
    return None if not others or lease_name in others else others[0]


def check_id(intent_id: str) -> None:
    """Raise ConfigurationError, before anything is sent, if a database could not store the id unchanged."""
    if not 0 < len(intent_id) <= INTENT_ID_CHARS_MAX or not is_storable(intent_id):
        message = f"An intent id has 1 to {INTENT_ID_CHARS_MAX} characters, none of them NUL."
        raise ConfigurationError(message, code="bad_intent_id")


def is_storable(text: str) -> bool:
    return fitted(text, len(text)) == text


def fitted(text: str | None, chars_max: int) -> str | None:
    """Return `text` cut to its column; characters that no database stores (NUL, half a surrogate pair) are replaced."""
    if text is None:
        return None
    return text[:chars_max].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
