"""The output of a command: a table on a terminal, aligned text elsewhere, JSON for a program; never a password.

At the end, the log of a long-running command on stderr.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from rich.cells import cell_len

from fencehold.cli import exit_codes
from fencehold.model.errors import FenceholdError, redact
from fencehold.telemetry.logs import escaped

SECRET_CHARS_MIN = 3

_secrets: set[str] = set()


def keep_secret(dsn: str) -> None:
    """From now on replace the password of this URL in all output, also if it is percent-encoded or escaped."""
    try:
        password = urlsplit(dsn).password
    except ValueError:
        password = None
    if password:
        words = [word for word in (password, unquote(password)) if len(word) >= SECRET_CHARS_MIN]
        _secrets.update(words, map(escaped, words))


def without_secrets(text: str) -> str:
    text = redact(text)
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def clean(text: str) -> str:
    """Return `text` without passwords and terminal control characters."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in without_secrets(text))


def put(text: str) -> None:
    """Print to stdout. A reader that has closed the pipe is no error."""
    with told_on_stdout():
        print(text, flush=True)


@contextmanager
def told_on_stdout() -> Iterator[None]:
    """Write to stdout inside the block. A reader that has closed the pipe is no error.

    Raises Refused if the output cannot be written, for example on a full disk.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        _forget_stdout()
        raise exit_codes.Refused(
            f"The answer could not be written to stdout: {error.strerror or error}.",
            hint="Make room, or send the output elsewhere. The command has done its work; only the output is lost.",
            code="output_failed",
            exit_code=exit_codes.NO_OUTPUT,
        ) from None


def _forget_stdout() -> None:
    """Discard what is still buffered, so that it does not fail again at exit."""
    with suppress(OSError, ValueError):  # a stdout that is no file has nothing to redirect
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Screen:
    """Prints a command's results to stdout, its progress and errors to stderr.

    With `-o json`, stderr carries one error object at most.
    """

    def __init__(self, output: str) -> None:
        self.is_json = output == "json"

    def result(self, payload: Any, text: str) -> None:
        put(json.dumps(payload, indent=2) if self.is_json else clean(text))

    def table(
        self,
        payload: Any,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        spare: Sequence[str] = (),
        instead: str = "",
    ) -> None:
        """Print rows as a table. `spare`: columns that may be left out on a narrow terminal.

        `instead` is the text to print if there are no rows.
        """
        if self.is_json:
            put(json.dumps(payload, indent=2))
        elif not rows and instead:
            self.say(instead)
        elif sys.stdout.isatty():
            from rich.console import Console  # not needed elsewhere, and it takes its time

            from fencehold.cli import tables

            with told_on_stdout():
                tables.show(Console(), columns, _cleaned(rows), spare)
        else:
            put(aligned([columns, *rows]))

    def fields(self, payload: Any, rows: Sequence[Sequence[str]]) -> None:
        """Print the fields of one thing, one line for each name and value."""
        if self.is_json:
            put(json.dumps(payload, indent=2))
        elif sys.stdout.isatty():
            from rich.console import Console

            from fencehold.cli import tables

            with told_on_stdout():
                tables.show_fields(Console(), _cleaned(rows))
        else:
            put(aligned([("FIELD", "VALUE"), *rows]))

    def say(self, text: str) -> None:
        """Print progress to stderr, but not with JSON output."""
        if not self.is_json:
            print(f"fencehold: {clean(text)}", file=sys.stderr, flush=True)

    def error(self, error: FenceholdError, **more: str | None) -> None:
        """Print an error to stderr.

        `more`: further fields of the JSON object; a field with the value None is left out.
        """
        if self.is_json:
            body = {"code": error.code, "message": clean(error.message), "hint": clean(error.hint)}
            body |= {key: value for key, value in more.items() if value is not None}
            print(json.dumps({"error": body}), file=sys.stderr, flush=True)
            return
        print(f"fencehold: [{error.code}] {clean(error.message)}", file=sys.stderr, flush=True)
        if error.hint:
            print(f"  hint: {clean(error.hint)}", file=sys.stderr, flush=True)


def _cleaned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[clean(cell) for cell in row] for row in rows]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as text with aligned columns, two blanks apart, by the width of each character on a terminal."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[n]) for row in cells) for n in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


# Spans of time


def span(seconds: float) -> str:
    """Return a readable duration. A negative one becomes 0, because two readings of a clock may differ a little."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


# Instants


def moment(when: dt.datetime) -> str:
    """Return the time in UTC, to the millisecond, as the database stores it."""
    return when.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def second(when: dt.datetime) -> str:
    """Return the time in UTC, to the second, for lists."""
    return when.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def log_to_stderr(*, as_json: bool, without: Collection[str] = ()) -> None:
    """Set up the root logger, so that the user's handlers log in the same format. Does nothing if it is set up already.

    `without`: facts of the library to leave out, because the command prints them itself.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: getattr(record, "event", None) not in without)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class TextLines(logging.Formatter):
    """Formats a log record as text, without passwords and terminal control characters, whoever logged it."""

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
