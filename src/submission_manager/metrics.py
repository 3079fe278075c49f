"""The metrics of one instance, in its own Prometheus registry. Users depend on the metric names: do not change them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from submission_manager.model.intents import Backlog, Exhausted, Status

TO_TERMINAL_S = (0.5, 1, 2, 5, 10, 30, 60, 120)
ATTEMPT_S = (0.1, 0.25, 0.5, 1, 2.5, 5)
GATEWAY_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
QUEUE_DELAY_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)
REFRESH_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
REBUILD_S = (0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60)
WEBHOOK_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

TERMINAL = tuple(status.value for status in Status if status is not Status.PENDING)
OUTCOMES = ("accepted", "rejected", "error", "unknown")
WRITES = ("start", "record", "expire", "webhook")
DELIVERIES = ("delivered", "failed")
NO_PLACE = (503, "too_many_connections")  # answered before the request is read
#: The usual answers to a client's request; each gets its series at 0 from the start.
ANSWERS = (
    (200, "ok"), (400, "invalid_request"), (404, "not_found"), (408, "request_timeout"), (409, "idempotency_conflict"),
    (413, "body_too_large"), (429, "backlog_full"), (500, "internal_error"), (503, "database_unavailable"),
    (503, "database_uncertain"), (503, "not_ready"), NO_PLACE,
)  # fmt: skip

GATEWAY_OUTCOMES = ("accepted", "rejected", "failed")
GATEWAYS_MAX = 100
TARGETS_MAX = 100
OTHERS = "other"  # the label of all gateways or targets beyond the maximum
NOTHING_WAITS = Backlog(0, 0.0, 0)

M = TypeVar("M", Counter, Histogram)


class Metrics:
    """The metrics of the intake, of the executor and, as a sink for facts, of the lease. Safe to use from any thread.

    Times are in seconds; statuses, reasons and outcomes are the values of the database's columns.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry or CollectorRegistry()
        self._name_intake()
        self._name_attempts()
        self._name_times()
        self._name_lease()

    def exposition(self) -> tuple[bytes, str]:
        """Return the answer to GET /metrics: the text and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def request(self, status: int, reason: str) -> None:
        """Count one request of a client, not of a probe, with its answer."""
        self._requests.labels(str(status), reason).inc()

    def watch_cannot_lead(self, says: Callable[[], str | None]) -> None:
        """Call `says` whenever the metrics are read: a gauge is 1 if `says` returns a reason why we cannot lead."""
        self._cannot_lead.set_function(lambda: float(says() is not None))

    # --- the leader's work ---

    def open_gateways(self, gateways: Iterable[str]) -> None:
        """Create the series of the registry's gateways at 0, before their first call.

        rate() does not see the first step of a series that first appears at 1.
        """
        for gateway in gateways:
            self._known_gateway(gateway)

    def open_targets(self, targets: Iterable[str]) -> None:
        """Create the series of the registry's targets at 0, before their first intent.

        rate() does not see the first step of a series that first appears at 1.
        """
        for target in targets:
            self._known_target(target)

    def role(self, is_leader: bool, epoch: int) -> None:
        """Record that the role has just changed; `epoch` is that of the term that began or ended."""
        self._leader.set(int(is_leader))
        self._epoch.set(epoch)
        if not is_leader:  # a follower knows nothing about the queue
            self.queue_depth.set(0)
            self.backlog(NOTHING_WAITS)

    def queue_delay(self, seconds: float) -> None:
        """Record the time from when an attempt was due until its start was recorded."""
        self._queue_delay.observe(max(0.0, seconds))

    def attempt(self, outcome_status: str, seconds: float | None) -> None:
        """Count one recorded attempt: `accepted`, `rejected`, `error` or `unknown` (left open by an earlier leader).

        `seconds`: from the recorded start to the recorded outcome; None: unknown.
        """
        self._attempts.labels(outcome_status).inc()
        if seconds is not None:
            self._attempt_seconds.observe(max(0.0, seconds))

    def gateway_call(self, gateway: str, outcome: str, seconds: float) -> None:
        """Count one call and its result: `accepted`, `rejected` for a reason that is final, or else `failed`."""
        known = self._known_gateway(gateway)
        self._gateway_attempts.labels(known, outcome).inc()
        self._gateway_seconds.labels(known).observe(max(0.0, seconds))

    def backlog(self, found: Backlog | None) -> None:
        """Record the count of late intents; None: the database did not answer."""
        self._overdue.set(found.overdue if found else math.nan)
        self._oldest_due.set(found.oldest_due_s if found else math.nan)
        self._past_deadline.set(found.past_deadline if found else math.nan)

    def ended(self, target: str, status: str, exhausted_reason: str | None, seconds_since_created: float) -> None:
        """Count one intent that is over."""
        known = self._known_target(target)
        self._terminal.labels(status).inc()
        self._to_terminal.labels(status).observe(max(0.0, seconds_since_created))
        self._target_terminal.labels(known, status).inc()
        if exhausted_reason is not None:
            self._exhausted.labels(exhausted_reason).inc()
            self._target_exhausted.labels(known, exhausted_reason).inc()

    def accepted_late(self, target: str) -> None:
        """Count an intent that the provider accepted after its deadline: the intent's status is exhausted."""
        self._accepted_late.labels(self._known_target(target)).inc()

    def rebuilt(self, intents: int, seconds: float) -> None:
        self._rebuild_seconds.observe(seconds)
        self.queue_depth.set(intents)

    def refreshed(self, rows: int, seconds: float, lag_s: float) -> None:
        """Record one refresh of the schedule. `lag_s`: the longest time that a row of it can have waited to be read."""
        self._refresh_rows.inc(rows)
        self._refresh_seconds.observe(seconds)
        self._refresh_lag.set(max(0.0, lag_s))

    def webhook(self, status: str, seconds: float) -> None:
        """Count one recorded webhook: `delivered` or `failed`."""
        self._webhooks.labels(status).inc()
        self._webhook_seconds.observe(max(0.0, seconds))

    def _known_gateway(self, gateway: str) -> str:
        """Return the label for this gateway; a new gateway's series start at 0.

        Beyond GATEWAYS_MAX all new gateways share the label `other`, because each series is kept for ever.
        """
        known = gateway if gateway in self._gateways or len(self._gateways) < GATEWAYS_MAX else OTHERS
        if known not in self._gateways:
            self._gateways.add(known)
            for outcome in GATEWAY_OUTCOMES:
                self._gateway_attempts.labels(known, outcome)
        return known

    def _known_target(self, target: str) -> str:
        known = target if target in self._targets or len(self._targets) < TARGETS_MAX else OTHERS
        if known not in self._targets:
            self._targets.add(known)
            self._accepted_late.labels(known)
            for status in TERMINAL:
                self._target_terminal.labels(known, status)
            for reason in Exhausted:
                self._target_exhausted.labels(known, reason.value)
        return known

    # --- the lease, from fencehold's facts ---

    def fact(self, event: str, **fields: Any) -> None:
        if event in self._of_lease:
            self._of_lease[event].inc()

    # --- names ---

    def _name_intake(self) -> None:
        self.created = self._counter("submission_intents_created_total", "Intents stored by this instance.")
        self.hits = self._counter("submission_idempotent_hits_total", "Submissions of an intent already stored.")
        self.conflicts = self._counter(
            "submission_idempotency_conflicts_total", "Submissions under an id that stands for something else."
        )
        self.refused = self._counter(
            "submission_backlog_refusals_total", "Submissions refused because too many of their target are pending."
        )
        self._requests = Counter(
            "submission_requests_total", "Requests of clients, by the status of the answer and its code.",
            ["status", "reason"], registry=self._registry,
        )  # fmt: skip
        for status, reason in ANSWERS:
            self._requests.labels(str(status), reason)

    def _name_attempts(self) -> None:
        self._terminal = self._counter("submission_intents_terminal_total", "Intents that ended.", status=TERMINAL)
        self._exhausted = self._counter(
            "submission_exhausted_total", "Intents given up, by why.", reason=tuple(one.value for one in Exhausted)
        )
        self._attempts = self._counter(
            "submission_attempts_total", "Attempts recorded; unknown: left open by an earlier leader.",
            outcome_status=OUTCOMES,
        )  # fmt: skip
        self.retries = self._counter("submission_retries_scheduled_total", "Attempts after which another is due.")
        self._webhooks = self._counter("submission_webhooks_total", "Webhooks recorded.", status=DELIVERIES)
        self._gateways: set[str] = set()
        self._gateway_attempts = Counter(
            "submission_gateway_attempts_total", "Attempts by gateway; failed: error, or a rejection that is no end.",
            ["gateway", "outcome"], registry=self._registry,
        )  # fmt: skip
        self._name_targets()
        self._name_queue()

    def _name_targets(self) -> None:
        self._targets: set[str] = set()
        self._target_terminal = Counter(
            "submission_target_terminal_total", "Intents that ended, by target.", ["target", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._target_exhausted = Counter(
            "submission_target_exhausted_total", "Intents given up, by target and why.", ["target", "reason"],
            registry=self._registry,
        )  # fmt: skip
        self._accepted_late = Counter(
            "submission_accepted_late_total", "Intents that the provider took after their deadline: exhausted.",
            ["target"], registry=self._registry,
        )  # fmt: skip

    def _name_queue(self) -> None:
        self.queue_depth = self._gauge("submission_queue_depth", "Intents in the leader's schedule.")
        self._overdue = self._gauge("submission_overdue_intents", "Pending intents that have been due for 30 s.")
        self._oldest_due = self._gauge("submission_oldest_due_seconds", "How long the longest due intent has been due.")
        self._past_deadline = self._gauge(
            "submission_past_deadline_intents", "Pending intents past their deadline, with no attempt under way."
        )
        self.inflight = self._gauge("submission_inflight_attempts", "Attempts begun and not yet recorded.")

    def _name_times(self) -> None:
        self._to_terminal = self._histogram(
            "submission_intent_time_to_terminal_seconds", "From stored to ended.", TO_TERMINAL_S, status=TERMINAL
        )
        self._attempt_seconds = self._histogram(
            "submission_attempt_duration_seconds", "From the start on record to the record of the outcome.", ATTEMPT_S
        )
        self._gateway_seconds = Histogram(
            "submission_gateway_call_seconds", "The gateway's call alone, to its answer or its timeout.", ["gateway"],
            buckets=GATEWAY_S, registry=self._registry,
        )  # fmt: skip
        self._queue_delay = self._histogram(
            "submission_queue_delay_seconds", "From due to the start on record.", QUEUE_DELAY_S
        )
        self._webhook_seconds = self._histogram(
            "submission_webhook_duration_seconds", "How long a webhook's receiver took.", WEBHOOK_S
        )
        self._rebuild_seconds = self._histogram(
            "submission_schedule_rebuild_seconds", "How long a new leader took to read its schedule.", REBUILD_S
        )
        self._refresh_seconds = self._histogram(
            "submission_schedule_refresh_seconds", "How long one refresh of the schedule took.", REFRESH_S
        )

    def _name_lease(self) -> None:
        self._refresh_rows = self._counter("submission_schedule_refresh_rows_total", "Rows the refreshes read.")
        self._refresh_lag = self._gauge(
            "submission_schedule_refresh_lag_seconds", "The longest a row of the last refresh can have waited."
        )
        self._cannot_lead = self._gauge("submission_cannot_lead", "1 while this instance lacks what it needs to lead.")
        self._leader = self._gauge("submission_leader", "1 while this instance leads, 0 while it follows.")
        self._epoch = self._gauge("submission_lease_epoch", "The epoch of this instance's newest term; 0: none yet.")
        self._of_lease = {
            "leader_acquired": self._counter("submission_lease_terms_total", "Terms of office that began here."),
            "leader_renewed": self._counter("submission_lease_renewals_total", "Renewals of the lease."),
            "leader_renew_failed": self._counter(
                "submission_lease_renewals_failed_total", "Renewals the database did not grant or not answer."
            ),
        }
        self.fenced_out = self._counter(
            "submission_fenced_out_writes_total", "Writes not made, because the lease was no longer ours.", write=WRITES
        )

    def _counter(self, name: str, meaning: str, **label: tuple[str, ...]) -> Counter:
        return _opened(Counter(name, meaning, list(label), registry=self._registry), label)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, registry=self._registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...], **label: tuple[str, ...]) -> Histogram:
        return _opened(Histogram(name, meaning, list(label), buckets=buckets, registry=self._registry), label)


def leave_out_creation_times() -> None:
    """Disable, for the whole process, the `_created` series of each counter: none of our dashboards reads it."""
    disable_created_metrics()  # type: ignore[no-untyped-call]


def _opened(metric: M, label: dict[str, tuple[str, ...]]) -> M:
    """Create every series of `metric` at 0: rate() does not see the first step of a series that appears at 1."""
    for values in label.values():
        for value in values:
            metric.labels(value)
    return metric
