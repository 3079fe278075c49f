"""Counts the results of the calls to each gateway, and logs a failing gateway once a minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fencehold import FactSink
from submission_manager.metrics import Metrics
from submission_manager.model.intents import Status
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Recorded, Started
from submission_manager.rare_log import RareLines

LOG_EVERY_S = 60.0
NAME_CHARS_MAX = 120


def gateway_name(url: str) -> str:
    """The gateway's address without user, password and query: safe for logs and metrics."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"[:NAME_CHARS_MAX]


def came_to(outcome: Outcome, status: Status) -> str:
    """`accepted`; `rejected` if the contract lists the reason as final (not the gateway's fault); else `failed`."""
    if outcome.answer is Answer.ACCEPTED:
        return "accepted"
    return "rejected" if status is Status.REJECTED else "failed"


@dataclass
class Count:
    """The counts of one gateway since its last log line."""

    attempts: int = 0
    failures: int = 0
    newest: dict[str, Any] = field(default_factory=dict)  # the newest failure

    def add(self, failure: dict[str, Any] | None) -> None:
        self.attempts += 1
        if failure is not None:
            self.failures += 1
            self.newest = failure


class GatewayWatch(RareLines):
    """Logs a gateway's first failure at once, then once a minute the failures and attempts, until a minute has none."""

    def __init__(self, metrics: Metrics, facts: FactSink) -> None:
        super().__init__(LOG_EVERY_S)
        self._metrics, self._facts = metrics, facts
        self._failing: dict[str, Count] = {}

    def ended(self, started: Started, outcome: Outcome, recorded: Recorded, seconds: float) -> None:
        """Count one recorded attempt; `seconds` is the duration of its call."""
        name, word = gateway_name(started.contract.gateway_url), came_to(outcome, recorded.status)
        self._metrics.gateway_call(name, word, seconds)
        fields = {
            "intent_id": started.intent_id, "submission_target": started.contract.submission_target,
            "attempt_number": started.attempt_number, "reason": outcome.reason, "error": outcome.error,
            "status": recorded.status.value,
        }  # fmt: skip
        if word == "rejected":
            self._facts.fact("attempt_rejected", gateway=name, **fields)
        self._count(name, fields if word == "failed" else None)

    def _count(self, name: str, failure: dict[str, Any] | None) -> None:
        if failure is not None or name in self._failing:
            self._failing.setdefault(name, Count()).add(failure)
            self._occurred(name)

    def _log(self, kind: str) -> bool:
        count = self._failing.pop(kind)
        if count.failures:
            counts = {"failures": count.failures, "attempts": count.attempts}
            self._facts.fact("attempt_failed", gateway=kind, **counts, **count.newest)
            self._failing[kind] = Count()
        return count.failures > 0
