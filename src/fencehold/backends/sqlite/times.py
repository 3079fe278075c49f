"""Reads times and numbers from rows that plain SQL may have written. No value in a row makes these functions raise."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Any

YEAR_MIN, YEAR_MAX = 2, 9998  # a time outside of them does not exist in every time zone


def nearest(text: str) -> dt.datetime:
    """Return the time in the text; if there is no such time, the nearest one: 28 February for 30 February.

    The tables refuse such a text, but a row that was made by an older version must not stop a worker or a command.
    """
    try:
        read = dt.datetime.fromisoformat(text)
        if YEAR_MIN <= read.year <= YEAR_MAX:
            return read
    except ValueError:
        pass
    return _clamped(text)


def whole(value: Any) -> int:
    """Return the value as a whole number; 0 if it is not a number."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _clamped(text: str) -> dt.datetime:
    """Return the time whose parts are read at their fixed places in the text, each limited to its range.

    The tables do check that each part is at its place.
    """
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
