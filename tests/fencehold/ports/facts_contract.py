"""Every fact that the runtime tells, with its fields: what metrics and logs are made of."""

from typing import Any

OF_WORKER = {"outbox": "orders", "worker_id": "w1"}
OF_EVENT = {**OF_WORKER, "id": 7, "tracking_id": "t", "event_type": "paid"}
REAPED = {"outbox": "orders", "recovered": 3, "dead": 1, "stale_s": [0.2, 4.0, 90.0, 5.0], "took_s": 0.004}
LOOKED = {
    "outbox": "orders", "pending": 12, "processing": 5, "failed": 2, "dead_letter": 1,
    "oldest_pending_age_s": 3.5, "looked_at": 1.5e9,
}  # fmt: skip

OF_ITEM = {"kind": "negotiation", "id": "n-7", "holder_id": "h", "token": 3}
OF_PROCESSOR = {"kind": "negotiation", "state": "REQUESTED"}

#: Every fact the runtime tells, with its fields.
CONTRACT: dict[str, dict[str, Any]] = {
    "events_claimed": {**OF_WORKER, "claimed": 20},
    "events_completed": {**OF_WORKER, "completed": 3, "refused": 1, "latencies_s": [0.02, 0.3, 7.0]},
    "event_failed": {**OF_EVENT, "attempt": 1, "status": "FAILED", "error": "ValueError: no"},
    "event_lost": {**OF_EVENT, "reason": "refused"},
    "event_aborted": {**OF_EVENT, "reason": "max_processing"},
    "worker_started": OF_WORKER,
    "worker_stopping": OF_WORKER,
    "worker_stopped": OF_WORKER,
    "worker_died": {**OF_WORKER, "error": "ValueError: no"},
    "worker_heartbeat": {**OF_WORKER, "sent": 10, "refused": 1},
    "worker_heartbeat_failed": {**OF_WORKER, "held": 10, "sql_error": "gone"},
    "worker_watched": {**OF_WORKER, "running": 10, "hung": 2, "oldest_s": 312.5, "silent_s": 7.5},
    "worker_loop_blocked": {**OF_WORKER, "silent_s": 7.5, "handler": "app.send", "where": "app.py:7 in send"},
    "worker_stuck": {**OF_WORKER, "places": 10, "hung": 2, "handler": "app.send", "age_s": 312.5},
    "worker_gave_up": {**OF_WORKER, "error": "[worker_stuck] ..."},
    "handler_slow": {**OF_EVENT, "handler": "app.send", "age_s": 46.0},
    "handler_hung": {**OF_EVENT, "handler": "app.send", "age_s": 91.0, "reason": "max_processing", "place": "taken"},
    "handler_ended_late": {**OF_EVENT, "handler": "app.send", "age_s": 91.0, "error": "ValueError: no"},
    "worker_paused": OF_WORKER,
    "worker_resumed": OF_WORKER,
    "worker_saturated": OF_WORKER,
    "worker_store_failed": {**OF_WORKER, "sql_error": "gone"},
    "store_unreachable": {
        "store": "s",
        "code": "unreachable",
        "error": "gone",
        "hint": "",
        "waited_s": 0.0,
        "tries": 1,
    },
    "store_answers": {"store": "s", "waited_s": 3.0},
    "worker_hook_failed": {**OF_WORKER, "error": "ValueError: no"},
    "reaper_run": REAPED,
    "outbox_stats": LOOKED,
    "outbox_unseen": {"outbox": "orders"},
    "events_redriven": {"outbox": "orders", "event_type": "paid", "count": 4, "root_cause": "fixed"},
    "events_purged": {"outbox": "orders", "count": 9},
    "leader_acquired": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3},
    "leader_acquire_failed": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": None},
    "leader_renewed": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3},
    "leader_renew_failed": {
        "lease_name": "nightly",
        "holder_id": "h",
        "lease_epoch": 3,
        "sql_error": "gone",
        "failures": 1,
        "not_logged": 0,
    },
    "leader_lost": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3, "reason": "expired"},
    "leader_releasing": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3, "reason": "released"},
    "leader_released": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3, "reason": "released"},
    "leader_left_to_lapse": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3, "why": "not given back"},
    "leader_job_failed": {
        "lease_name": "nightly",
        "holder_id": "h",
        "lease_epoch": 3,
        "failures": 1,
        "retry_in_s": 1.5,
    },
    "lease_row_locked": {"lease_name": "nightly", "holder_id": "h", "locked_s": 2.1, "tries": 12, "why": "a lock"},
    "leader_stalled": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3, "silent_s": 9.0},
    "fence_not_awaited": {"lease_name": "nightly", "holder_id": "h", "lease_epoch": 3, "hint": "Write await."},
    "items_leased": {"kind": "negotiation", "holder_id": "h", "leased": 20},
    "item_lost": {**OF_ITEM, "reason": "deadline_passed"},
    "item_stalled": {**OF_ITEM, "silent_s": 9.0},
    "item_break_failed": {**OF_ITEM, "sql_error": "gone"},
    "item_heartbeat": {"kind": "negotiation", "sent": 10, "refused": 1},
    "item_heartbeat_failed": {"kind": "negotiation", "held": 10, "sql_error": "gone"},
    "item_unchanged": {**OF_PROCESSOR, "id": "n-7", "token": 3, "calls": 1, "detail": "the handler returned"},
    "item_processed": {**OF_PROCESSOR, "id": "n-7", "token": 3, "now": "AGREED", "moved": True},
    "item_failed": {**OF_PROCESSOR, "id": "n-7", "token": 3, "error": "ValueError: no", "rest_s": 1.0},
    "item_called_off": {**OF_PROCESSOR, "id": "n-7", "token": 3},
    "processor_started": {**OF_PROCESSOR, "concurrency": 10},
    "processor_stopping": {**OF_PROCESSOR, "in_hand": 3},
    "processor_stopped": OF_PROCESSOR,
    "processor_died": {**OF_PROCESSOR, "error": "ValueError: no"},
    "processor_store_failed": {**OF_PROCESSOR, "sql_error": "gone"},
    "callback_failed": {"error": "ValueError: no"},
    "internal_error": {"error": "ValueError: no"},
    "request_charged": {"verb": "acquire", "request_units": 1.0},
}
