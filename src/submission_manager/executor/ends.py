"""Handles the end of an intent, whatever caused the end: counts it, logs missed deadlines, and queues the webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencehold import FactSink
from submission_manager.context import ServiceContext
from submission_manager.executor.tenure import Tenure
from submission_manager.executor.webhooks import WebhookDelivery
from submission_manager.model.intents import Exhausted
from submission_manager.model.outcomes import Answer, Outcome
from submission_manager.ports import Over
from submission_manager.rare_log import RareLog
from submission_manager.schedule.schedule import micros

LOG_EVERY_S = 60.0
PASSED = "their deadline passed before the gateway's acceptance was on record"
NO_TIME = "no time was left for another attempt before their deadline"
SOME_NO_TIME = "; those with no_time_left ended earlier: " + NO_TIME
TAKEN = "; those accepted_late were taken by the provider all the same"


class Ends:
    """Counts ended intents, queues their webhooks, and logs missed deadlines."""

    def __init__(self, webhooks: WebhookDelivery, context: ServiceContext) -> None:
        self._webhooks, self._metrics = webhooks, context.metrics
        self._late = LateWatch(context.facts)

    def put(
        self, tenure: Tenure, over: Over | None, outcome: Outcome | None = None, deadline_us: int | None = None
    ) -> None:
        """Handle an end that was recorded; do nothing if `over` is None.

        `outcome` is that of the attempt that caused the end, if an attempt did. `deadline_us`: the intent's deadline,
        if the intent may have ended before it.
        """
        if over is None:
            return
        intent = over.intent
        took = (intent.completed_at - intent.created_at).total_seconds() if intent.completed_at else 0.0
        self._metrics.ended(intent.submission_target, intent.status.value, intent.exhausted_reason, took)
        if intent.exhausted_reason == Exhausted.DEADLINE_EXCEEDED:
            self._missed(over, outcome is not None and outcome.answer is Answer.ACCEPTED, deadline_us)
        self._webhooks.owe(tenure, over)

    def close(self) -> None:
        self._late.close()

    def _missed(self, over: Over, is_accepted: bool, deadline_us: int | None) -> None:
        target, ended_at = over.intent.submission_target, over.intent.completed_at
        is_early = deadline_us is not None and ended_at is not None and micros(ended_at) < deadline_us
        if is_accepted:
            self._metrics.accepted_late(target)
        self._late.missed(target, over.intent.intent_id, is_accepted=is_accepted, is_early=is_early)


class LateWatch(RareLog):
    """Logs the missed deadlines of each target: at once, then once a minute, until none is missed for a minute."""

    def __init__(self, facts: FactSink) -> None:
        super().__init__(facts, "deadlines_missed", LOG_EVERY_S)

    def missed(self, target: str, intent_id: str, *, is_accepted: bool = False, is_early: bool = False) -> None:
        """Count an intent that its deadline ended.

        `is_accepted`: the provider accepted the intent nevertheless. `is_early`: the deadline had not passed yet.
        """
        counts = {"intents": 1, "accepted_late": int(is_accepted), "no_time_left": int(is_early)}
        self.add(target, counts, intent_id=intent_id)

    def _line(self, kind: str, counts: Mapping[str, int], newest: dict[str, Any]) -> dict[str, Any]:
        why = PASSED + (SOME_NO_TIME if counts["no_time_left"] else "") + (TAKEN if counts["accepted_late"] else "")
        if counts["no_time_left"] == counts["intents"]:
            why = NO_TIME
        return {"submission_target": kind, **counts, **newest, "why": why}
