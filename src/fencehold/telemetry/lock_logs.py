"""Structured lines on a leader lock's own stdlib logger: `lock_acquired key1=1 key2=2`."""

from __future__ import annotations

import logging
from typing import Any

from fencehold.model.errors import redact

LEVELS = {
    "health_check_failed": logging.WARNING,
    "lock_lost": logging.WARNING,
    "callback_failed": logging.ERROR,
    "gave_up": logging.ERROR,
}


class StructuredLogger:
    """`info("event", key=value)` and so on; a fixed context goes along; passwords never pass."""

    def __init__(self, logger: logging.Logger, **context: Any) -> None:
        self._logger = logger
        self._context = context

    def bind(self, **context: Any) -> StructuredLogger:
        return StructuredLogger(self._logger, **{**self._context, **context})

    def fact(self, event: str, **fields: Any) -> None:
        level = LEVELS.get(event, logging.INFO)
        if self._logger.isEnabledFor(level):
            pairs = {**fields, **self._context}
            text = " ".join(f"{key.rstrip('_')}={_shown(value)}" for key, value in pairs.items() if value is not None)
            self._logger.log(level, "%s %s", event, text, extra={"event": event, self._logger.name: pairs})


def _shown(value: object) -> str:
    text = redact(" ".join(str(value).split()))
    return f'"{text}"' if " " in text or not text else text
