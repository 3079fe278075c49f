"""What follows from an intent's end, whoever brought it about: it is counted, and its webhook owed."""

from __future__ import annotations

from submission_manager.executor_metrics import ExecutorMetrics
from submission_manager.executor_tenure import Tenure
from submission_manager.executor_webhooks import WebhookDesk
from submission_manager.ports import Over


class Ends:
    def __init__(self, webhooks: WebhookDesk, metrics: ExecutorMetrics) -> None:
        self._webhooks, self._metrics = webhooks, metrics

    def put(self, tenure: Tenure, over: Over | None) -> None:
        """Its end is on record; None: it has not ended."""
        if over is None:
            return
        intent = over.intent
        took = (intent.completed_at - intent.created_at).total_seconds() if intent.completed_at else 0.0
        self._metrics.terminal(intent.status.value, took)
        if intent.exhausted_reason is not None:
            self._metrics.exhausted(intent.exhausted_reason)
        self._webhooks.owe(tenure, over)
