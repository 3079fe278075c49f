"""The log of a long-running command on stderr: text lines, or with `-o json` one JSON object per line."""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from collections.abc import Collection
from typing import Any

from fencehold.cli.screen import clean, without_secrets


def log_to_stderr(*, as_json: bool, without: Collection[str] = ()) -> None:
    """Set up the root logger, so that the user's handlers log in the same format. Keeps a setup that is there already.

    `without`: events of the library to leave out, because the command prints them itself.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: getattr(record, "event", None) not in without)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class TextLines(logging.Formatter):
    """Formats a record as text, without passwords and terminal control characters, wherever the message is from."""

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
