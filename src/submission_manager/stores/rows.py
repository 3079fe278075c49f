"""Converts rows to values and values to parameters. Texts from a gateway or a receiver are cut to their column here."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fencehold.model.errors import ConfigurationError
from submission_manager.model.backlog import Backlog
from submission_manager.model.contracts import Contract, GatewayType, Policy, Webhook
from submission_manager.model.intents import INTENT_ID_CHARS_MAX, Attempt, Intent, NewIntent, Status, WebhookStatus
from submission_manager.ports import Due, LeftOpen, Over, Submission, Submitted
from submission_manager.stores.dialect import Dialect

Row = tuple[Any, ...]
#: One shared string for all rows with the same gateway or target: up to a million rows are kept in memory.
Texts = dict[str, str]
INTENT_COLUMNS = 8


def intent(row: Row, dialect: Dialect) -> Intent:
    intent_id, target, created_at, status, count, completed_at, reason, exhausted = row[:INTENT_COLUMNS]
    return Intent(
        intent_id, target, dialect.instant(created_at), Status(status), count, dialect.instant_or_none(completed_at),
        rejected_reason=reason if status == Status.REJECTED else None, exhausted_reason=exhausted,
    )  # fmt: skip


def history(rows: list[Row], dialect: Dialect) -> tuple[Intent, list[Attempt]] | None:
    if not rows:
        return None
    tails = [row[INTENT_COLUMNS:] for row in rows]
    return intent(rows[0], dialect), [attempt(tail, dialect) for tail in tails if tail[0] is not None]


def attempt(row: Row, dialect: Dialect) -> Attempt:
    number, started_at, finished_at, *rest = row
    return Attempt(number, dialect.instant(started_at), dialect.instant(finished_at), *rest)


def over(row: Row, dialect: Dialect) -> Over:
    return Over(intent(row, dialect), webhook(*row[INTENT_COLUMNS:]))


def backlog(row: Row, dialect: Dialect) -> Backlog:
    overdue, oldest_at, past_deadline, now = row
    oldest_s = 0.0 if oldest_at is None else (dialect.instant(now) - dialect.instant(oldest_at)).total_seconds()
    return Backlog(overdue, max(0.0, oldest_s), past_deadline)


def due(row: Row, texts: Texts) -> Due:
    """One row of the schedule, from a row whose times are converted already.

    The statement returns `deadline_s` only if the policy is a deadline.
    """
    intent_id, due_at, modified_at, url, target, created_at, deadline_s = row[:7]
    until = None if deadline_s is None else created_at + dt.timedelta(seconds=deadline_s)
    return Due(intent_id, due_at, modified_at, texts.setdefault(url, url), texts.setdefault(target, target), until)


def webhook(url: str | None, headers: str | None, headers_env: str | None, secret_env: str | None) -> Webhook | None:
    if url is None:
        return None
    return Webhook(url, json.loads(headers or "{}"), json.loads(headers_env or "{}"), secret_env)


def contract(row: Row, target: str) -> Contract:
    gateway_type, gateway_url, policy, seconds, attempts, outcomes, *hook = row
    return Contract(
        target, GatewayType(gateway_type), gateway_url, Policy(policy), tuple(json.loads(outcomes)),
        max_acceptance_seconds=seconds, max_attempts=attempts, webhook=webhook(*hook),
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


def payload(new: NewIntent) -> bytes | None:
    """The payload, or None. No payload and zero bytes are the same; JSON `null` is a payload of four bytes."""
    return new.payload or None


def payload_hash(payload: bytes | None) -> bytes:
    return hashlib.sha256(payload or b"").digest()


def known(new: NewIntent, row: Row, dialect: Dialect) -> Submitted:
    """The result for an id that is stored already: KNOWN if target and payload are the same, else CONFLICT."""
    is_same = is_repeat(new.contract.submission_target, new.payload, row, dialect)
    return Submitted(Submission.KNOWN if is_same else Submission.CONFLICT, intent(row, dialect))


def is_repeat(target: str, payload: bytes | None, row: Row, dialect: Dialect) -> bool:
    return intent(row, dialect).submission_target == target and bytes(row[-1]) == payload_hash(payload)


def created(new: NewIntent, created_at: Any, dialect: Dialect) -> Submitted:
    at = dialect.instant(created_at)
    fresh = Intent(new.intent_id, new.contract.submission_target, at, Status.PENDING, 0)
    return Submitted(Submission.CREATED, fresh)


def left_open(found: list[Row]) -> LeftOpen:
    return LeftOpen(found[0][2] if found else 0, [(intent_id, number) for intent_id, number, _ in found])


def owner(found: list[Row], lease_name: str) -> str | None:
    """The lease that owns the tables, from the rows of `owner`; None: nobody, so this lease may become the owner.

    Tables of an older version have no recorded owner. If other leases exist and `lease_name` is not among them, one of
    those is returned, so that a new lease does not get the tables.
    """
    recorded = [str(name) for name, is_owner in found if is_owner]
    others = sorted(str(name) for name, is_owner in found if not is_owner)
    if recorded:
        return recorded[0]
    return None if not others or lease_name in others else others[0]


def check_id(intent_id: str) -> None:
    """Raise ConfigurationError, before anything is sent, if a database could not store the id unchanged."""
    if not 0 < len(intent_id) <= INTENT_ID_CHARS_MAX or not is_storable(intent_id):
        raise bad_id(f"An intent id has 1 to {INTENT_ID_CHARS_MAX} characters, none of them NUL.")


def bad_id(why: str) -> ConfigurationError:
    return ConfigurationError(why, code="bad_intent_id")


def is_storable(text: str) -> bool:
    return fitted(text, len(text)) == text


def fitted(text: str | None, chars_max: int) -> str | None:
    """`text` cut to its column; characters that no database stores (NUL, half a surrogate pair) are replaced."""
    if text is None:
        return None
    return text[:chars_max].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
