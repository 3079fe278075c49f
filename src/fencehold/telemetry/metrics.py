"""The table of metrics: every metric, and which fact changes it. It needs no package; prometheus.py reads it.

A metric's name is its name in the rule book of the outbox (see docs/metrics.md), in Prometheus spelling: dots become
underscores, a counter ends in _total, a duration in _seconds. Metrics labelled by worker live as long as the worker;
all others as long as the process.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencehold.model.outbox.rules import Status

Fields = Mapping[str, Any]


class Kind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Office(enum.Enum):
    """How a fact changes the gauge that is 1 while this process leads: it seeks, begins or ends leadership.

    The epochs of the facts decide, since facts of two threads may arrive out of order.
    """

    SOUGHT = "sought"
    ENTERED = "entered"
    LEFT = "left"


#: For gauges when several processes share one exposition (prometheus-client's multi-process mode).
NEWEST, ANY = "livemostrecent", "livemax"

OUTBOX, WORKER, LEASE, NONE = ("outbox",), ("outbox", "worker_id"), ("lease_name",), ()
ITEMS, ITEM_STATE = ("kind",), ("kind", "state")
VERB = ("verb",)
LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
STALE_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
TOOK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


@dataclass(frozen=True)
class Feed:
    """A fact that changes a metric, by the value of one of the fact's fields or by a constant.

    `given`: labels that are not in the fact.
    """

    fact: str
    takes: str | float | Office = 1
    when: Callable[[Fields], bool] | None = None
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric. `rule_book` is its name in the outbox's rule book; empty for a metric that is not in that book."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    meaning: str
    fed_by: Sequence[Feed]
    rule_book: str = ""
    buckets: tuple[float, ...] = ()
    multiprocess: str = ANY


def will_retry(fact: Fields) -> bool:
    return bool(fact["status"] == Status.FAILED)


def is_dead(fact: Fields) -> bool:
    return bool(fact["status"] == Status.DEAD_LETTER)


def brought_some(fact: Fields) -> bool:
    return bool(fact["claimed"] > 0)


COUNTER, GAUGE, HISTOGRAM = Kind

#: The facts of a look at the table, and of its end: then nobody looks any more, and OF_A_LOOK is removed.
LOOK, END_OF_A_LOOK = "outbox_stats", "outbox_unseen"

METRICS: tuple[Metric, ...] = (
    Metric(
        COUNTER, "outbox_events_claimed_total", OUTBOX, "events claimed, each try anew",
        [Feed("events_claimed", "claimed")],
    ),
    Metric(
        HISTOGRAM, "worker_events_per_batch", WORKER, "events one claim brought, empty claims aside",
        [Feed("events_claimed", "claimed", when=brought_some)], rule_book="worker.events.per_batch", buckets=BATCH,
    ),
    Metric(
        COUNTER, "outbox_events_completed_total", OUTBOX, "events whose completion was recorded",
        [Feed("events_completed", "completed")], rule_book="outbox.events.completed",
    ),
    Metric(
        COUNTER, "outbox_completions_refused_total", OUTBOX, "completions that came after the lease was over",
        [Feed("events_completed", "refused")],
    ),
    Metric(
        COUNTER, "worker_batches_processed_total", WORKER, "batches whose results were recorded",
        [Feed("events_completed")], rule_book="worker.batches.processed",
    ),
    Metric(
        HISTOGRAM, "outbox_processing_latency_seconds", OUTBOX, "from created to completed",
        [Feed("events_completed", "latencies_s")], rule_book="outbox.processing.latency", buckets=LATENCY_S,
    ),
    Metric(
        COUNTER, "outbox_events_failed_total", OUTBOX, "failed tries that will be retried",
        [Feed("event_failed", when=will_retry)], rule_book="outbox.events.failed",
    ),
    Metric(
        COUNTER, "outbox_events_dead_letter_total", OUTBOX, "events given up, by a worker or by the reaper",
        [Feed("event_failed", when=is_dead), Feed("reaper_run", "dead")], rule_book="outbox.events.dead_letter",
    ),
    Metric(
        COUNTER, "outbox_events_lost_total", OUTBOX, "results not recorded: the lease was lost or the worker over",
        [Feed("event_lost")],
    ),
    Metric(
        COUNTER, "outbox_events_aborted_total", OUTBOX, "handlers stopped because they exceeded max_processing",
        [Feed("event_aborted")],
    ),
    Metric(
        GAUGE, "worker_running", WORKER, "1 from start to stop",
        [Feed("worker_started")],
    ),
    Metric(
        GAUGE, "worker_paused", WORKER, "1 while it claims nothing because it was paused",
        [Feed("worker_started", 0), Feed("worker_paused"), Feed("worker_resumed", 0)],
    ),
    Metric(
        COUNTER, "worker_saturated_total", WORKER, "times it stopped claiming because what it feeds was saturated",
        [Feed("worker_saturated")],
    ),
    Metric(
        COUNTER, "worker_store_failures_total", WORKER, "claims and results the database did not answer",
        [Feed("worker_store_failed")],
    ),
    Metric(
        COUNTER, "worker_hook_failures_total", WORKER, "times the saturation hook raised",
        [Feed("worker_hook_failed")],
    ),
    Metric(
        GAUGE, "worker_handlers_running", WORKER, "handlers that run now",
        [Feed("worker_watched", "running")],
    ),
    Metric(
        GAUGE, "worker_handlers_hung", WORKER, "handlers that run on although their lease is lost",
        [Feed("worker_watched", "hung")],
    ),
    Metric(
        GAUGE, "worker_oldest_handler_age_seconds", WORKER, "how long the oldest of them has run",
        [Feed("worker_watched", "oldest_s")],
    ),
    Metric(
        GAUGE, "worker_loop_silent_seconds", WORKER, "how long its event loop has not turned",
        [Feed("worker_watched", "silent_s")],
    ),
    Metric(
        COUNTER, "worker_slow_handlers_total", WORKER,
        "warnings of handlers that take longer than half of max_processing",
        [Feed("handler_slow")],
    ),
    Metric(
        COUNTER, "worker_loop_blocked_total", WORKER, "warnings that its event loop does not turn",
        [Feed("worker_loop_blocked")],
    ),
    Metric(
        COUNTER, "worker_stuck_total", WORKER, "warnings that all its places are taken by handlers that seem hung",
        [Feed("worker_stuck")],
    ),
    Metric(
        COUNTER, "outbox_worker_deaths_total", OUTBOX, "workers that ended by an error",
        [Feed("worker_died")],
    ),
    Metric(
        COUNTER, "worker_heartbeats_sent_total", WORKER, "renewals sent for leases on events",
        [Feed("worker_heartbeat", "sent")], rule_book="worker.heartbeats.sent",
    ),
    Metric(
        COUNTER, "worker_heartbeats_refused_total", WORKER, "leases that were no longer the worker's",
        [Feed("worker_heartbeat", "refused")],
    ),
    Metric(
        COUNTER, "worker_heartbeats_failed_total", WORKER, "heartbeats the database did not answer",
        [Feed("worker_heartbeat_failed")],
    ),
    Metric(
        COUNTER, "reaper_runs_total", OUTBOX, "runs of the reaper",
        [Feed("reaper_run")], rule_book="reaper.runs.total",
    ),
    Metric(
        COUNTER, "reaper_recovered_count_total", OUTBOX, "events recovered from a lapsed lease",
        [Feed("reaper_run", "recovered")], rule_book="reaper.recovered.count",
    ),
    Metric(
        COUNTER, "worker_reaper_recovered_total", OUTBOX, "events that the reapers of this process recovered",
        [Feed("reaper_run", "recovered")], rule_book="worker.reaper.recovered",
    ),
    Metric(
        HISTOGRAM, "reaper_stale_duration_seconds", OUTBOX,
        "how long a lease had been over when its event was recovered",
        [Feed("reaper_run", "stale_s")], rule_book="reaper.stale.duration", buckets=STALE_S,
    ),
    Metric(
        HISTOGRAM, "reaper_run_duration_seconds", OUTBOX, "how long one run of the reaper took",
        [Feed("reaper_run", "took_s")], buckets=TOOK_S,
    ),
    Metric(
        GAUGE, "outbox_events_pending", OUTBOX, "events waiting to be claimed",
        [Feed("outbox_stats", "pending")], rule_book="outbox.events.pending", multiprocess=NEWEST,
    ),
    Metric(
        GAUGE, "outbox_events_processing", OUTBOX, "events held by a worker",
        [Feed("outbox_stats", "processing")], rule_book="outbox.events.processing", multiprocess=NEWEST,
    ),
    Metric(
        GAUGE, "outbox_events_retrying", OUTBOX, "events between two tries",
        [Feed("outbox_stats", "failed")], multiprocess=NEWEST,
    ),
    Metric(
        GAUGE, "outbox_dead_letters", OUTBOX, "dead letters in the table",
        [Feed("outbox_stats", "dead_letter")], multiprocess=NEWEST,
    ),
    Metric(
        GAUGE, "outbox_oldest_pending_age_seconds", OUTBOX, "how long the oldest claimable event has been due",
        [Feed("outbox_stats", "oldest_pending_age_s")], rule_book="outbox.oldest_pending.age", multiprocess=NEWEST,
    ),
    Metric(
        GAUGE, "outbox_last_look_timestamp_seconds", OUTBOX, "when this process last looked at the table (Unix time)",
        [Feed("outbox_stats", "looked_at")], multiprocess=NEWEST,
    ),
    Metric(
        COUNTER, "outbox_events_redriven_total", OUTBOX, "dead letters made pending again",
        [Feed("events_redriven", "count")],
    ),
    Metric(
        COUNTER, "outbox_events_purged_total", OUTBOX, "finished events deleted",
        [Feed("events_purged", "count")],
    ),
    Metric(
        GAUGE, "fencehold_leader", LEASE, "1 while this process leads, 0 while it does not",
        [Feed("leader_acquire_failed", Office.SOUGHT), Feed("leader_acquired", Office.ENTERED),
         Feed("leader_lost", Office.LEFT), Feed("leader_releasing", Office.LEFT)],
    ),
    Metric(
        COUNTER, "fencehold_leader_transitions_total", (*LEASE, "change"),
        "terms acquired, lost and released, by `change`",
        [Feed("leader_acquired", given={"change": "acquired"}), Feed("leader_lost", given={"change": "lost"}),
         Feed("leader_released", given={"change": "released"}),
         Feed("leader_left_to_lapse", given={"change": "released"})],
    ),
    Metric(
        COUNTER, "fencehold_renew_failures_total", LEASE, "renewals the database did not answer",
        [Feed("leader_renew_failed")],
    ),
    Metric(
        COUNTER, "fencehold_leader_stalls_total", LEASE, "leases let go because the event loop stood still",
        [Feed("leader_stalled")],
    ),
    Metric(
        COUNTER, "fencehold_leader_job_failures_total", LEASE, "times a job of `run_as_leader` raised",
        [Feed("leader_job_failed")],
    ),
    Metric(
        COUNTER, "fencehold_items_leased_total", ITEMS, "leases on items that this process was granted",
        [Feed("items_leased", "leased")],
    ),
    Metric(
        COUNTER, "fencehold_items_lost_total", ITEMS, "leases on items lost while somebody worked under them",
        [Feed("item_lost")],
    ),
    Metric(
        COUNTER, "fencehold_item_stalls_total", ITEMS, "items let go because the event loop stood still",
        [Feed("item_stalled")],
    ),
    Metric(
        COUNTER, "fencehold_item_break_failures_total", ITEMS,
        "leases on items not given back: they lapse by themselves",
        [Feed("item_break_failed")],
    ),
    Metric(
        COUNTER, "fencehold_item_heartbeats_sent_total", ITEMS, "renewals sent for leases on items",
        [Feed("item_heartbeat", "sent")],
    ),
    Metric(
        COUNTER, "fencehold_item_heartbeats_refused_total", ITEMS, "leases on items that were no longer this process's",
        [Feed("item_heartbeat", "refused")],
    ),
    Metric(
        COUNTER, "fencehold_item_heartbeats_failed_total", ITEMS, "heartbeats of items the database did not answer",
        [Feed("item_heartbeat_failed")],
    ),
    Metric(
        COUNTER, "fencehold_items_processed_total", ITEM_STATE, "handlers that returned, by the state they serve",
        [Feed("item_processed")],
    ),
    Metric(
        COUNTER, "fencehold_items_failed_total", ITEM_STATE, "handlers that raised",
        [Feed("item_failed")],
    ),
    Metric(
        COUNTER, "fencehold_processor_store_failures_total", ITEM_STATE, "batches the database did not answer",
        [Feed("processor_store_failed")],
    ),
    Metric(
        COUNTER, "fencehold_processor_deaths_total", ITEM_STATE, "processors that ended by an error",
        [Feed("processor_died")],
    ),
    Metric(
        COUNTER, "fencehold_requests_total", VERB, "requests to Cosmos DB, by the verb that needed them",
        [Feed("request_charged")],
    ),
    Metric(
        COUNTER, "fencehold_request_units_total", VERB, "what Cosmos DB charged for them (RU)",
        [Feed("request_charged", "request_units")],
    ),
    Metric(
        COUNTER, "fencehold_callback_failures_total", NONE, "callbacks that raised",
        [Feed("callback_failed")],
    ),
    Metric(
        COUNTER, "fencehold_store_unreachable_total", NONE,
        "waits for the database: one at the first failure, one a minute after",
        [Feed("store_unreachable")],
    ),
    Metric(
        COUNTER, "fencehold_internal_errors_total", NONE, "faults of fencehold itself, survived",
        [Feed("internal_error")],
    ),
)  # fmt: skip

#: Every feed with its metric.
FEEDS = tuple((metric, feed) for metric in METRICS for feed in metric.fed_by)

#: The metrics from a look at the table, but for the one that says when that was.
OF_A_LOOK = tuple(metric for metric, feed in FEEDS if feed.fact == LOOK and feed.takes != "looked_at")

#: The last facts of a worker. Then its series are removed, or a process that restarts workers would collect them.
LAST_OF_A_WORKER = frozenset({"worker_stopped", "worker_died"})
