"""The table of metrics: every metric, and which fact changes it. It needs no package; prometheus.py reads it.

A name is that of the rule book in Prometheus spelling: dots become underscores, a counter ends in _total, a duration in
_seconds. Metrics labelled by worker live as long as the worker; all others as long as the process.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fencehold.model.outbox.events import Status

Fields = Mapping[str, Any]


class Kind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Office(enum.Enum):
    """How a fact changes the gauge of who leads: by epochs, since facts of two threads may arrive out of order."""

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


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric. `rule_book` is its name in the rule book; empty for a metric that is not in it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    rule_book: str = ""
    buckets: tuple[float, ...] = ()
    multiprocess: str = ANY


@dataclass(frozen=True)
class Feed:
    """One fact changes one metric: by the value of a field, or by a constant. `given`: labels not in the fact."""

    fact: str
    metric: Metric
    takes: str | float | Office
    when: Callable[[Fields], bool] | None = None
    given: tuple[tuple[str, str], ...] = ()


def will_retry(fact: Fields) -> bool:
    return bool(fact["status"] == Status.FAILED)


def is_dead(fact: Fields) -> bool:
    return bool(fact["status"] == Status.DEAD_LETTER)


def brought_some(fact: Fields) -> bool:
    return bool(fact["claimed"] > 0)


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

PENDING = Metric(
    "outbox_events_pending", _G, OUTBOX, "events waiting to be claimed", "outbox.events.pending", multiprocess=NEWEST
)
PROCESSING = Metric(
    "outbox_events_processing", _G, OUTBOX, "events held by a worker", "outbox.events.processing", multiprocess=NEWEST
)
COMPLETED = Metric(
    "outbox_events_completed_total", _C, OUTBOX, "events whose completion was recorded", "outbox.events.completed"
)
FAILED = Metric("outbox_events_failed_total", _C, OUTBOX, "failed tries that will be retried", "outbox.events.failed")
DEAD_LETTER = Metric(
    "outbox_events_dead_letter_total", _C, OUTBOX, "events given up, by a worker or by the reaper",
    "outbox.events.dead_letter",
)  # fmt: skip
LATENCY = Metric(
    "outbox_processing_latency_seconds", _H, OUTBOX, "from created to completed", "outbox.processing.latency", LATENCY_S
)
OLDEST = Metric(
    "outbox_oldest_pending_age_seconds", _G, OUTBOX, "how long the oldest claimable event has been due",
    "outbox.oldest_pending.age", multiprocess=NEWEST,
)  # fmt: skip
BATCHES = Metric(
    "worker_batches_processed_total", _C, WORKER, "batches whose results were recorded", "worker.batches.processed"
)
PER_BATCH = Metric(
    "worker_events_per_batch", _H, WORKER, "events one claim brought, empty claims aside",
    "worker.events.per_batch", BATCH,
)  # fmt: skip
HEARTBEATS = Metric(
    "worker_heartbeats_sent_total", _C, WORKER, "renewals sent for leases on events", "worker.heartbeats.sent"
)
WORKER_RECOVERED = Metric(
    "worker_reaper_recovered_total", _C, OUTBOX, "events that the reapers of this process recovered",
    "worker.reaper.recovered",
)  # fmt: skip
RECOVERED = Metric(
    "reaper_recovered_count_total", _C, OUTBOX, "events recovered from a lapsed lease", "reaper.recovered.count"
)
STALE = Metric(
    "reaper_stale_duration_seconds", _H, OUTBOX, "how long a lease had been over when its event was recovered",
    "reaper.stale.duration", STALE_S,
)  # fmt: skip
RUNS = Metric("reaper_runs_total", _C, OUTBOX, "runs of the reaper", "reaper.runs.total")

TOOK = Metric("reaper_run_duration_seconds", _H, OUTBOX, "how long one run of the reaper took", buckets=TOOK_S)
LOOKED_AT = Metric(
    "outbox_last_look_timestamp_seconds", _G, OUTBOX, "when this process last looked at the table (Unix time)",
    multiprocess=NEWEST,
)  # fmt: skip
RETRYING = Metric("outbox_events_retrying", _G, OUTBOX, "events between two tries", multiprocess=NEWEST)
DEAD_LETTERS = Metric("outbox_dead_letters", _G, OUTBOX, "dead letters in the table", multiprocess=NEWEST)
CLAIMED = Metric("outbox_events_claimed_total", _C, OUTBOX, "events claimed, each try anew")
REFUSED = Metric("outbox_completions_refused_total", _C, OUTBOX, "completions that came after the lease was over")
LOST = Metric("outbox_events_lost_total", _C, OUTBOX, "results not recorded: the lease was lost or the worker over")
ABORTED = Metric("outbox_events_aborted_total", _C, OUTBOX, "handlers stopped because they exceeded max_processing")
REDRIVEN = Metric("outbox_events_redriven_total", _C, OUTBOX, "dead letters made pending again")
PURGED = Metric("outbox_events_purged_total", _C, OUTBOX, "finished events deleted")
DEATHS = Metric("outbox_worker_deaths_total", _C, OUTBOX, "workers that ended by an error")
RUNNING = Metric("worker_running", _G, WORKER, "1 from start to stop")
PAUSED = Metric("worker_paused", _G, WORKER, "1 while it claims nothing because it was paused")
SATURATED = Metric(
    "worker_saturated_total", _C, WORKER, "times it stopped claiming because what it feeds was saturated"
)
STORE_FAILURES = Metric("worker_store_failures_total", _C, WORKER, "claims and results the database did not answer")
HOOK_FAILURES = Metric("worker_hook_failures_total", _C, WORKER, "times the saturation hook raised")
BEATS_REFUSED = Metric("worker_heartbeats_refused_total", _C, WORKER, "leases that were no longer the worker's")
BEATS_FAILED = Metric("worker_heartbeats_failed_total", _C, WORKER, "heartbeats the database did not answer")

HANDLERS_RUNNING = Metric("worker_handlers_running", _G, WORKER, "handlers that run now")
HANDLERS_HUNG = Metric("worker_handlers_hung", _G, WORKER, "handlers that run on although their lease is lost")
HANDLERS_OLDEST = Metric("worker_oldest_handler_age_seconds", _G, WORKER, "how long the oldest of them has run")
LOOP_SILENT = Metric("worker_loop_silent_seconds", _G, WORKER, "how long its event loop has not turned")
HANDLERS_SLOW = Metric(
    "worker_slow_handlers_total", _C, WORKER, "warnings of handlers that take longer than half of max_processing"
)
LOOP_BLOCKED = Metric("worker_loop_blocked_total", _C, WORKER, "warnings that its event loop does not turn")
STUCK = Metric("worker_stuck_total", _C, WORKER, "warnings that all its places are taken by handlers that seem hung")

LEADER = Metric("fencehold_leader", _G, LEASE, "1 while this process leads, 0 while it does not")
TRANSITIONS = Metric(
    "fencehold_leader_transitions_total", _C, (*LEASE, "change"), "terms acquired, lost and released, by `change`"
)
RENEW_FAILURES = Metric("fencehold_renew_failures_total", _C, LEASE, "renewals the database did not answer")
STALLS = Metric("fencehold_leader_stalls_total", _C, LEASE, "leases let go because the event loop stood still")
JOB_FAILURES = Metric("fencehold_leader_job_failures_total", _C, LEASE, "times a job of `run_as_leader` raised")
CALLBACK_FAILURES = Metric("fencehold_callback_failures_total", _C, NONE, "callbacks that raised")
UNREACHABLE = Metric(
    "fencehold_store_unreachable_total",
    _C,
    NONE,
    "waits for the database: one at the first failure, one a minute after",
)
INTERNAL_ERRORS = Metric("fencehold_internal_errors_total", _C, NONE, "faults of fencehold itself, survived")

ITEMS_LEASED = Metric("fencehold_items_leased_total", _C, ITEMS, "leases on items that this process was granted")
ITEMS_LOST = Metric("fencehold_items_lost_total", _C, ITEMS, "leases on items lost while somebody worked under them")
ITEM_STALLS = Metric("fencehold_item_stalls_total", _C, ITEMS, "items let go because the event loop stood still")
ITEM_BREAKS_FAILED = Metric(
    "fencehold_item_break_failures_total", _C, ITEMS, "leases on items not given back: they lapse by themselves"
)
ITEM_BEATS = Metric("fencehold_item_heartbeats_sent_total", _C, ITEMS, "renewals sent for leases on items")
ITEM_BEATS_REFUSED = Metric(
    "fencehold_item_heartbeats_refused_total", _C, ITEMS, "leases on items that were no longer this process's"
)
ITEM_BEATS_FAILED = Metric(
    "fencehold_item_heartbeats_failed_total", _C, ITEMS, "heartbeats of items the database did not answer"
)
PROCESSED = Metric("fencehold_items_processed_total", _C, ITEM_STATE, "handlers that returned, by the state they serve")
PROCESS_FAILED = Metric("fencehold_items_failed_total", _C, ITEM_STATE, "handlers that raised")
PROCESSOR_STORE_FAILURES = Metric(
    "fencehold_processor_store_failures_total", _C, ITEM_STATE, "batches the database did not answer"
)
PROCESSOR_DEATHS = Metric("fencehold_processor_deaths_total", _C, ITEM_STATE, "processors that ended by an error")

REQUESTS = Metric("fencehold_requests_total", _C, VERB, "requests to Cosmos DB, by the verb that needed them")
REQUEST_UNITS = Metric("fencehold_request_units_total", _C, VERB, "what Cosmos DB charged for them (RU)")

FEEDS: tuple[Feed, ...] = (
    #    fact                      metric             takes                    when / given
    Feed("events_claimed",         CLAIMED,           "claimed"),
    Feed("events_claimed",         PER_BATCH,         "claimed",               brought_some),
    Feed("events_completed",       COMPLETED,         "completed"),
    Feed("events_completed",       REFUSED,           "refused"),
    Feed("events_completed",       BATCHES,           1),
    Feed("events_completed",       LATENCY,           "latencies_s"),
    Feed("event_failed",           FAILED,            1,                       will_retry),
    Feed("event_failed",           DEAD_LETTER,       1,                       is_dead),
    Feed("event_lost",             LOST,              1),
    Feed("event_aborted",          ABORTED,           1),
    Feed("worker_started",         RUNNING,           1),
    Feed("worker_started",         PAUSED,            0),
    Feed("worker_paused",          PAUSED,            1),
    Feed("worker_resumed",         PAUSED,            0),
    Feed("worker_saturated",       SATURATED,         1),
    Feed("worker_store_failed",    STORE_FAILURES,    1),
    Feed("worker_hook_failed",     HOOK_FAILURES,     1),
    Feed("worker_watched",         HANDLERS_RUNNING,  "running"),
    Feed("worker_watched",         HANDLERS_HUNG,     "hung"),
    Feed("worker_watched",         HANDLERS_OLDEST,   "oldest_s"),
    Feed("worker_watched",         LOOP_SILENT,       "silent_s"),
    Feed("handler_slow",           HANDLERS_SLOW,     1),
    Feed("worker_loop_blocked",    LOOP_BLOCKED,      1),
    Feed("worker_stuck",           STUCK,             1),
    Feed("worker_died",            DEATHS,            1),
    Feed("worker_heartbeat",       HEARTBEATS,        "sent"),
    Feed("worker_heartbeat",       BEATS_REFUSED,     "refused"),
    Feed("worker_heartbeat_failed", BEATS_FAILED,     1),
    Feed("reaper_run",             RUNS,              1),
    Feed("reaper_run",             RECOVERED,         "recovered"),
    Feed("reaper_run",             WORKER_RECOVERED,  "recovered"),
    Feed("reaper_run",             DEAD_LETTER,       "dead"),
    Feed("reaper_run",             STALE,             "stale_s"),
    Feed("reaper_run",             TOOK,              "took_s"),
    Feed("outbox_stats",           PENDING,           "pending"),
    Feed("outbox_stats",           PROCESSING,        "processing"),
    Feed("outbox_stats",           RETRYING,          "failed"),
    Feed("outbox_stats",           DEAD_LETTERS,      "dead_letter"),
    Feed("outbox_stats",           OLDEST,            "oldest_pending_age_s"),
    Feed("outbox_stats",           LOOKED_AT,         "looked_at"),
    Feed("events_redriven",        REDRIVEN,          "count"),
    Feed("events_purged",          PURGED,            "count"),
    Feed("leader_acquire_failed",  LEADER,            Office.SOUGHT),
    Feed("leader_acquired",        LEADER,            Office.ENTERED),
    Feed("leader_lost",            LEADER,            Office.LEFT),
    Feed("leader_releasing",       LEADER,            Office.LEFT),
    Feed("leader_acquired",        TRANSITIONS,       1,                       given=(("change", "acquired"),)),
    Feed("leader_lost",            TRANSITIONS,       1,                       given=(("change", "lost"),)),
    Feed("leader_released",        TRANSITIONS,       1,                       given=(("change", "released"),)),
    Feed("leader_left_to_lapse",   TRANSITIONS,       1,                       given=(("change", "released"),)),
    Feed("leader_renew_failed",    RENEW_FAILURES,    1),
    Feed("leader_stalled",         STALLS,            1),
    Feed("leader_job_failed",      JOB_FAILURES,      1),
    Feed("items_leased",           ITEMS_LEASED,      "leased"),
    Feed("item_lost",              ITEMS_LOST,        1),
    Feed("item_stalled",           ITEM_STALLS,       1),
    Feed("item_break_failed",      ITEM_BREAKS_FAILED, 1),
    Feed("item_heartbeat",         ITEM_BEATS,        "sent"),
    Feed("item_heartbeat",         ITEM_BEATS_REFUSED, "refused"),
    Feed("item_heartbeat_failed",  ITEM_BEATS_FAILED, 1),
    Feed("item_processed",         PROCESSED,         1),
    Feed("item_failed",            PROCESS_FAILED,    1),
    Feed("processor_store_failed", PROCESSOR_STORE_FAILURES, 1),
    Feed("processor_died",         PROCESSOR_DEATHS,  1),
    Feed("request_charged",        REQUESTS,          1),
    Feed("request_charged",        REQUEST_UNITS,     "request_units"),
    Feed("callback_failed",        CALLBACK_FAILURES, 1),
    Feed("store_unreachable",      UNREACHABLE,       1),
    Feed("internal_error",         INTERNAL_ERRORS,   1),
)  # fmt: skip

#: In the order of the table above, each once.
METRICS: tuple[Metric, ...] = tuple({feed.metric.name: feed.metric for feed in FEEDS}.values())

#: The metrics from a look at the table. After END_OF_A_LOOK nobody looks any more: their series are then removed.
OF_A_LOOK: tuple[Metric, ...] = (PENDING, PROCESSING, RETRYING, DEAD_LETTERS, OLDEST)
LOOK, END_OF_A_LOOK = "outbox_stats", "outbox_unseen"

#: The last facts of a worker. Then its series are removed, or a process that restarts workers would collect them.
LAST_OF_A_WORKER = frozenset({"worker_stopped", "worker_died"})
