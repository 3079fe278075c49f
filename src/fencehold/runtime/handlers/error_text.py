"""A handler's error as text: in full for the log, short for a column; without passwords, and never endless."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import traceback
from pathlib import Path

from fencehold.model.errors import redact

ERROR_CHARS_MAX = 2000  # of the column `last_error`
WORDS_CHARS_MAX = 1000  # of these, what the error says; the rest is for where it was raised
LOG_CHARS_MAX = 100_000
LINE_CHARS_MAX = 2000  # of a traceback: to look for passwords in a line of millions would hold up the loop

#: What follows it in `last_error` is where the error was raised.
TRACEBACK_MARK = "\n\nTraceback ("
WHOLE = "\n\nTraceback (most recent call last):\n"
CUT = "\n\nTraceback (its end):\n"

_OURS = str(Path(__file__).parents[1])  # runtime/
_POOL = concurrent.futures.thread.__file__


def described(error: BaseException) -> str:
    """Kind and words, no traceback."""
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: raised in the handler, or in what it waited for; not by its worker"
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even say what it is
        words = ""
    return storable(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def stored(error: BaseException) -> str:
    """As the column `last_error` keeps it: kind and words, then the end of the traceback, which names the culprit."""
    words, where = described(error), _where(error)
    if not where:
        return words
    words = words[:WORDS_CHARS_MAX]
    whole = f"{words}{WHOLE}{where}"
    if len(whole) <= ERROR_CHARS_MAX:
        return whole
    return f"{words}{CUT}{where[-(ERROR_CHARS_MAX - len(words) - len(CUT)) :]}"


def in_full(error: BaseException) -> str:
    """The whole traceback, with what caused it; empty if there is nothing to see but the error itself."""
    where, said = _formatted(error)
    return _cleaned(where + said).rstrip("\n") if where else ""


def storable(text: str) -> str:
    """Without passwords, and as every database can keep it."""
    clean = redact(text[: 2 * ERROR_CHARS_MAX]).replace("\0", "").encode("utf-8", "replace").decode()
    return clean[:ERROR_CHARS_MAX]


def _where(error: BaseException) -> str:
    """The traceback without its first line, and without what the error says, which stands elsewhere."""
    where, _ = _formatted(error)
    return _cleaned(where).removeprefix(WHOLE.lstrip("\n")).rstrip("\n")


def _formatted(error: BaseException) -> tuple[str, str]:
    """Where it was raised, with what caused it, and what it says; frames of the worker that called it are left out."""
    try:
        shown = traceback.TracebackException.from_exception(from_the_handler(error))
        lines, said = list(shown.format()), len(list(shown.format_exception_only()))
    except Exception:  # noqa: BLE001 - an error that cannot even be shown
        return "", ""
    if isinstance(error, BaseExceptionGroup):  # what it says is followed by the errors in it
        return "".join(lines), ""
    return "".join(lines[:-said]), "".join(lines[-said:])


def from_the_handler(error: BaseException) -> BaseException:
    """The error without the frames of the worker that called the handler."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith((_OURS, _POOL)):
        tb = tb.tb_next
    return error.with_traceback(tb)


def _cleaned(text: str) -> str:
    """Whole lines from the end, none too long. Passwords go before the last cut, which could hide where one begins."""
    kept = "\n".join(line[: 2 * LINE_CHARS_MAX] for line in text.split("\n"))
    if len(kept) > LOG_CHARS_MAX:
        kept = kept[-LOG_CHARS_MAX:].partition("\n")[2]
    clean = redact(kept).replace("\0", "").encode("utf-8", "replace").decode()
    return "\n".join(
        line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]}..." for line in clean.split("\n")
    )
