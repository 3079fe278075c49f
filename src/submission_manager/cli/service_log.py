"""The service's log on stderr: one line per fact, with the event names of the specification."""

from __future__ import annotations

import logging

from fencehold import LogSink
from fencehold.command import log_to_stderr

LEVELS = {
    "leader_renewed": logging.INFO,
    "leader_acquire_failed": logging.INFO,
    "tables_created": logging.INFO,
    "serving": logging.INFO,
    "draining": logging.INFO,
    "stopped": logging.INFO,
    "schedule_rebuilt": logging.INFO,
    "request_failed": logging.WARNING,
    "webhook_failed": logging.WARNING,
    "variables_missing": logging.WARNING,
    "variable_unknown": logging.WARNING,
    "variable_ignored": logging.WARNING,
    "retry_delay_long": logging.WARNING,
    "attempt_failed": logging.WARNING,
    "attempt_rejected": logging.DEBUG,
    "attempts_cut": logging.ERROR,
    "webhooks_cut": logging.WARNING,
    "leadership_paused": logging.WARNING,
    "connections_refused": logging.WARNING,
    "executor_sql_error": logging.WARNING,
    "attempt_fenced_out": logging.WARNING,
    "deadlines_missed": logging.WARNING,
    "expiry_put_off": logging.WARNING,
    "backlog_full": logging.WARNING,
    "backlog_uncounted": logging.WARNING,
    "outcomes_unknown": logging.WARNING,
    "intent_parked": logging.ERROR,
    "webhook_not_recorded": logging.ERROR,
}

FORMATS = ("text", "json")
WEIGHTS = ("debug", "info", "warning", "error")


def service_log(log_format: str, log_level: str) -> LogSink:
    log_to_stderr(as_json=log_format == "json")
    logging.getLogger("fencehold").setLevel(log_level.upper())
    # These libraries log single connections; the service counts what matters of them.
    for noisy in ("uvicorn.error", "uvicorn.access", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    return LogSink(levels=LEVELS)
