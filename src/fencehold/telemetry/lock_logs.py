"""Structured lines on a leader lock's own stdlib logger: `lock_acquired key1=1 key2=2`."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from fencehold.model.errors import redact

#: Fields that are called otherwise in these lines.
NAMES = {"old": "from", "new": "to"}
LEVELS = {
    "health_check_failed": logging.WARNING,
    "lock_lost": logging.WARNING,
    "timeline_unread": logging.WARNING,
    "callback_failed": logging.ERROR,
    "gave_up": logging.ERROR,
    "store_unreachable": logging.WARNING,
    "fence_not_awaited": logging.ERROR,
}


class StructuredLogger:
    """A logger with fields: `info("event", key=value)` and so on.

    Adds its own context to every line; logs no passwords.
    """

    def __init__(self, logger: logging.Logger, **context: Any) -> None:
        self._logger = logger
        self._context = context

    def bind(self, **context: Any) -> StructuredLogger:
        """Return a copy of this logger with more context; this logger stays as it is."""
        return StructuredLogger(self._logger, **{**self._context, **context})

    def fact(self, event: str, **fields: Any) -> None:
        """Log at the level that belongs to the event."""
        self._log(LEVELS.get(event, logging.INFO), event, fields)

    def debug(self, event: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error, with the traceback of the exception that is being handled."""
        # Not logging's own exc_info: a traceback may quote a connection string.
        self._log(logging.ERROR, event, fields, trace=redact(traceback.format_exc()))

    def _log(self, level: int, event: str, fields: dict[str, Any], trace: str = "") -> None:
        if self._logger.isEnabledFor(level):
            text = "\n".join(filter(None, [self._format(event, fields), trace.rstrip()]))
            extra = {"event": event, self._logger.name: {**fields, **self._context}}
            self._logger.log(level, "%s", text, extra=extra)

    def _format(self, event: str, fields: dict[str, Any]) -> str:
        pairs = {**fields, **self._context}
        shown = [f"{NAMES.get(key, key)}={_shown(value)}" for key, value in pairs.items() if value is not None]
        return " ".join([event, *shown])


def _shown(value: object) -> str:
    text = redact(" ".join(str(value).split()))
    return f'"{text}"' if " " in text or not text else text
