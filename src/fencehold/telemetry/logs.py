"""Logs facts as structured records: one readable line, and the same fields for programs in `record.fencehold`.

The traceback of a failed handler follows its line. It is indented, so that no line of it looks like a line of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from textwrap import indent
from typing import Any

from fencehold.model.errors import redact
from fencehold.model.outbox.rules import Status
from fencehold.ports.fact_table import LEVELS

LOGGER = logging.getLogger("fencehold")

#: Reported at every try while the store is away; `store_unreachable` is reported once, and then rarely.
EVERY_TRY = frozenset({"leader_acquire_failed", "worker_store_failed", "processor_store_failed", "reaper_failed"})
#: Never logged: an event's contents belong to its owner. No fact has these fields; if one had, they would be left out.
PRIVATE = frozenset({"payload", "payload_json", "metadata", "metadata_json", "document", "document_json"})
SHOWN_VALUES_MAX = 5
SHOWN_NAMES_MAX = 100  # for names, such as ids: the reader needs to know which ones
TRACEBACK = "traceback"


def level_of(event: str, fields: Mapping[str, Any], levels: Mapping[str, int] = LEVELS) -> int:
    """Return the log level of a fact. Its fields count more than its name: a dead letter is always an error."""
    level = levels.get(event, logging.INFO)
    if fields.get("sql_error") and event not in EVERY_TRY:
        level = max(level, logging.WARNING)
    if event == "event_failed" and fields.get("status") == Status.DEAD_LETTER:
        level = logging.ERROR
    if fields.get("is_repeat"):  # one of many equal facts: the next line gives their number
        level = min(level, logging.DEBUG)
    if event == "leader_renewed" and fields.get("failures"):
        level = max(level, logging.INFO)
    if event == "handler_ended_late" and fields.get("error"):
        level = logging.WARNING
    if event == "reaper_run" and fields.get("recovered"):
        level = logging.INFO
    if event == "reaper_run" and fields.get("dead"):
        level = logging.ERROR
    return level


class LogSink:
    """Logs every fact. Never raises; never logs passwords or payloads. `levels` replaces the levels of single facts."""

    def __init__(self, logger: logging.Logger = LOGGER, levels: Mapping[str, int] | None = None) -> None:
        self._logger = logger
        self._levels = LEVELS | dict(levels or {})

    def fact(self, event: str, **fields: Any) -> None:
        level = level_of(event, fields, self._levels)
        if not self._logger.isEnabledFor(level):
            return
        clean = {
            key: redact(value) if isinstance(value, str) else value
            for key, value in fields.items()
            if key not in PRIVATE
        }
        shown = {key: value for key, value in clean.items() if value not in (None, "") and key != TRACEBACK}
        text = " ".join(f"{key}={_shown(value)}" for key, value in shown.items())
        traceback = clean.get(TRACEBACK)
        below = "\n" + indent(str(traceback), "  ") if traceback else ""
        extra = {"event": event, "fencehold": {"event": event, **clean}}
        self._logger.log(level, "%s %s%s", event, text, below, extra=extra)


def escaped(text: str) -> str:
    """Escape backslashes and quotes for a text between quotes, so that a program reads the line correctly."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _shown(value: object) -> str:
    """Return the value on one line: a handler's error may have many lines."""
    text = " ".join((_listed(value) if isinstance(value, list) else str(value)).split())
    return f'"{escaped(text)}"' if " " in text or '"' in text else text


def _listed(values: list[object]) -> str:
    if len(values) > SHOWN_VALUES_MAX and not all(isinstance(one, str) for one in values):
        return f"[{len(values)} values]"
    more = len(values) - SHOWN_NAMES_MAX
    return str(values[:SHOWN_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
