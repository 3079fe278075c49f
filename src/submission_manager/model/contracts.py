"""A contract: where an intent goes, how often and how long, and which answers are final. Copied onto each intent."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class GatewayType(enum.StrEnum):
    SMS = "sms"
    PUSH = "push"


class Policy(enum.StrEnum):
    DEADLINE = "deadline"
    MAX_ATTEMPTS = "max_attempts"
    ONE_SHOT = "one_shot"


#: Why a gateway of each type may reject. `accepted` is always final and never listed.
TAXONOMY: Mapping[GatewayType, frozenset[str]] = {
    GatewayType.SMS: frozenset(
        {"invalid_request", "duplicate_reference", "invalid_recipient", "invalid_message", "provider_failure"}
    ),
    GatewayType.PUSH: frozenset({"invalid_request", "duplicate_reference", "provider_failure", "unregistered_token"}),
}


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where to send the webhook when an intent is over. Secrets are names of environment variables, never values."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_env: Mapping[str, str] = field(default_factory=dict)
    secret_env: str | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    submission_target: str
    gateway_type: GatewayType
    gateway_url: str
    policy: Policy
    terminal_outcomes: tuple[str, ...]
    max_acceptance_seconds: int | None = None
    max_attempts: int | None = None
    webhook: Webhook | None = None


PRIORITY_MAX = 9


@dataclass(frozen=True, slots=True)
class Queueing:
    """How a target's intents wait. It is read from the current registry, never copied onto an intent.

    `priority`: higher ones go first at their gateway. `max_backlog`: while so many are pending, new intents are
    refused.
    """

    priority: int = 0
    max_backlog: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    contract: Contract
    queueing: Queueing = Queueing()
