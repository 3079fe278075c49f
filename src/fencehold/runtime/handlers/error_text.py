"""A handler's error as text, without passwords and of limited length: long for the log, short for a column."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import traceback
from pathlib import Path

from fencehold.model.errors import redact

ERROR_CHARS_MAX = 2000  # of the column `last_error`
WORDS_CHARS_MAX = 1000  # of these, for the error's message; the rest is for its traceback
LOG_CHARS_MAX = 100_000
LINE_CHARS_MAX = 2000  # of one line of a traceback: searching a very long line for passwords would block the event loop

#: In `last_error` it separates the error's message from its traceback.
TRACEBACK_MARK = "\n\nTraceback ("
WHOLE = "\n\nTraceback (most recent call last):\n"
CUT = "\n\nTraceback (its end):\n"

_OURS = str(Path(__file__).parents[1])  # runtime/
_POOL = concurrent.futures.thread.__file__


def described(error: BaseException) -> str:
    """Return the error's type and message, without a traceback."""
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: raised in the handler, or in what it waited for; not by its worker"
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - its own __str__ fails
        words = ""
    return storable(f"{type(error).__name__}: {words}" if words else type(error).__name__)


def stored(error: BaseException) -> str:
    """Return the text for the column `last_error`: type and message, then as much of the traceback as fits.

    Of a traceback that does not fit, the end is kept, because that names the line that raised.
    """
    words, where = described(error), _where(error)
    if not where:
        return words
    words = words[:WORDS_CHARS_MAX]
    whole = f"{words}{WHOLE}{where}"
    if len(whole) <= ERROR_CHARS_MAX:
        return whole
    return f"{words}{CUT}{where[-(ERROR_CHARS_MAX - len(words) - len(CUT)) :]}"


def in_full(error: BaseException) -> str:
    """Return the whole traceback as text, with the errors that caused this one.

    Empty if it would show only the error.
    """
    where, said = _formatted(error)
    return _cleaned(where + said).rstrip("\n") if where else ""


def storable(text: str) -> str:
    """Return the text without passwords, cut to the maximum, and with only characters that every database can store."""
    clean = redact(text[: 2 * ERROR_CHARS_MAX]).replace("\0", "").encode("utf-8", "replace").decode()
    return clean[:ERROR_CHARS_MAX]


def _where(error: BaseException) -> str:
    """Return the traceback without its first line and without the error's message, which `stored` puts before it."""
    where, _ = _formatted(error)
    return _cleaned(where).removeprefix(WHOLE.lstrip("\n")).rstrip("\n")


def _formatted(error: BaseException) -> tuple[str, str]:
    """Return two texts: the traceback, with the errors that caused this one, and the error's own message.

    Frames of the worker that called the handler are left out.
    """
    try:
        shown = traceback.TracebackException.from_exception(from_the_handler(error))
        lines, said = list(shown.format()), len(list(shown.format_exception_only()))
    except Exception:  # noqa: BLE001 - it cannot be formatted
        return "", ""
    if isinstance(error, BaseExceptionGroup):  # its message is followed by the errors in the group
        return "".join(lines), ""
    return "".join(lines[:-said]), "".join(lines[-said:])


def from_the_handler(error: BaseException) -> BaseException:
    """Return the error, with the worker's own frames removed from its traceback: those above the handler."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith((_OURS, _POOL)):
        tb = tb.tb_next
    return error.with_traceback(tb)


def _cleaned(text: str) -> str:
    """Return the text without passwords; of a long text only the last whole lines, each cut to a limit.

    Passwords are removed before the last cut, because a cut could hide where a password begins.
    """
    kept = "\n".join(line[: 2 * LINE_CHARS_MAX] for line in text.split("\n"))
    if len(kept) > LOG_CHARS_MAX:
        kept = kept[-LOG_CHARS_MAX:].partition("\n")[2]
    clean = redact(kept).replace("\0", "").encode("utf-8", "replace").decode()
    return "\n".join(
        line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]}..." for line in clean.split("\n")
    )
