"""Facts as structured log records: one line a person can read, the same fields for a program in `record.fencehold`."""

from __future__ import annotations

import logging
from typing import Any

from fencehold.model.errors import redact

LOGGER = logging.getLogger("fencehold")

LEVELS = {
    "leader_acquired": logging.INFO,
    "leader_released": logging.INFO,
    "leader_renewed": logging.DEBUG,
    "leader_lost": logging.WARNING,
    "leader_acquire_failed": logging.DEBUG,
    "leader_renew_failed": logging.WARNING,
    "leader_release_failed": logging.WARNING,
    "leader_stalled": logging.WARNING,
    "callback_failed": logging.ERROR,
    "internal_error": logging.ERROR,
    "state_change": logging.DEBUG,
}


class LogSink:
    """Never raises; passwords never pass."""

    def __init__(self, logger: logging.Logger = LOGGER) -> None:
        self._logger = logger

    def fact(self, event: str, **fields: Any) -> None:
        level = LEVELS.get(event, logging.INFO)
        if fields.get("sql_error"):
            level = max(level, logging.WARNING)
        if not self._logger.isEnabledFor(level):
            return
        clean = {key: redact(value) if isinstance(value, str) else value for key, value in fields.items()}
        text = " ".join(f"{key}={_shown(value)}" for key, value in clean.items() if value is not None)
        self._logger.log(level, "%s %s", event, text, extra={"event": event, "fencehold": {"event": event, **clean}})


def _shown(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text else text
