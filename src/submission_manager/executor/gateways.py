"""Counts the results of the calls to each gateway, and logs a failing gateway once a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fencehold import FactSink
from submission_manager.metrics import Metrics
from submission_manager.model.intents import Status
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Recorded, Started
from submission_manager.rare_log import RareLog

LOG_EVERY_S = 60.0
NAME_CHARS_MAX = 120


def gateway_name(url: str) -> str:
    """Return the gateway's address without user, password and query: safe for logs and metrics."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"[:NAME_CHARS_MAX]


def came_to(outcome: Outcome, status: Status) -> str:
    """Return the result of a call: `accepted`, `rejected` or `failed`.

    A call is `rejected` if the contract lists the provider's reason as final, which is not the gateway's fault.
    """
    if outcome.answer is Answer.ACCEPTED:
        return "accepted"
    return "rejected" if status is Status.REJECTED else "failed"


class GatewayWatch(RareLog):
    """Logs a gateway's first failure at once, then once a minute the failures and attempts, until a minute has none."""

    def __init__(self, metrics: Metrics, facts: FactSink) -> None:
        super().__init__(facts, "attempt_failed", LOG_EVERY_S)
        self._metrics = metrics

    def ended(self, started: Started, outcome: Outcome, recorded: Recorded, seconds: float) -> None:
        """Count one recorded attempt; `seconds` is the duration of its call."""
        name, word = gateway_name(started.contract.gateway_url), came_to(outcome, recorded.status)
        self._metrics.gateway_call(name, word, seconds)
        fields = {
            "intent_id": started.intent_id, "submission_target": started.contract.submission_target,
            "attempt_number": started.attempt_number, "reason": outcome.reason, "error": outcome.error,
            "status": recorded.status.value,
        }  # fmt: skip
        if word == "failed":
            self.add(name, {"failures": 1, "attempts": 1}, **fields)
            return
        self.count(name, {"failures": 0, "attempts": 1})
        if word == "rejected":
            self._facts.fact("attempt_rejected", gateway=name, **fields)

    def _line(self, kind: str, counts: Mapping[str, int], newest: dict[str, Any]) -> dict[str, Any]:
        return {"gateway": kind, **counts, **newest}
