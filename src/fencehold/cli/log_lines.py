"""The log of a long-running command on stderr: a line for a person, or with `-o json` an object per line."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from collections.abc import Collection
from typing import Any

from fencehold.cli.screen import clean, without_secrets


def log_to_stderr(*, as_json: bool, without: Collection[str] = ()) -> None:
    """For the root logger, so that the handlers' own records come the same way. What is set up already stays.

    `without` are events of the library that the command tells itself.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: getattr(record, "event", None) not in without)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class TextLines(logging.Formatter):
    """Neither passwords nor characters that would steer a terminal, whoever wrote the message."""

    def format(self, record: logging.LogRecord) -> str:
        text = clean(f"{_at(record)} {record.levelname:<7} {record.getMessage()}")
        return f"{text}\n{clean(self.formatException(record.exc_info))}" if record.exc_info else text


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fencehold", None) or {"message": record.getMessage()}
        line = {"at": _at(record), "level": record.levelname, "logger": record.name, **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        shown = {key: without_secrets(value) if isinstance(value, str) else value for key, value in line.items()}
        return json.dumps(shown, default=str)


def _at(record: logging.LogRecord) -> str:
    return dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
