"""Reads times and numbers from rows that plain SQL may have written: never raises, whatever is in them."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Any

YEAR_MIN, YEAR_MAX = 2, 9998  # a time outside of them does not exist in every time zone


def nearest(text: str) -> dt.datetime:
    """Return the time in a row, or the nearest that exists: 28 February for the 30th, 23:59 for 24 o'clock.

    The tables refuse such a row, but one that was made before they did must not stop a worker or a command.
    """
    try:
        read = dt.datetime.fromisoformat(text)
        if YEAR_MIN <= read.year <= YEAR_MAX:
            return read
    except ValueError:
        pass
    return _clamped(text)


def whole(value: Any) -> int:
    """Return the number in a row; 0 if it is none."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _clamped(text: str) -> dt.datetime:
    """Read each part at its fixed place in the text, which the table does check, and limit it to its range."""
    year = min(max(_number(text[:4]), YEAR_MIN), YEAR_MAX)
    month = min(max(_number(text[5:7]), 1), 12)
    day = min(max(_number(text[8:10]), 1), calendar.monthrange(year, month)[1])
    hour, rest = _number(text[11:13]), (_number(text[14:16]), _number(text[17:19]), _number(text[20:23]))
    if hour > 23:
        hour, rest = 23, (59, 59, 999)
    minute, second, ms = min(rest[0], 59), min(rest[1], 59), rest[2]
    return dt.datetime(year, month, day, hour, minute, second, ms * 1000, dt.UTC)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
