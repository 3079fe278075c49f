"""Turns durations as people write them (30, 0.5, timedelta, "30s", "5m") into seconds."""

from __future__ import annotations

import datetime as dt
import math
import re

from fencehold.model.errors import ConfigurationError

Duration = float | int | str | dt.timedelta

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d|)\s*", re.ASCII)

HINT = "One number with a unit: ms, s, m, h or d; without one it is seconds. A program may also give a timedelta."

DURATION_S_MAX = 365 * 86400.0
NUMBER_MAX = 1e15
AGE_YEARS_MAX = 100  # the highest age that an operator may give


def seconds(value: Duration, what: str = "duration", years_max: int = 1, *, may_be_zero: bool = False) -> float:
    """Return `value` as a positive, finite number of seconds. Raises ConfigurationError that names the setting."""
    number = _number(value, what)
    is_enough = number >= 0 if may_be_zero else number > 0
    if not math.isfinite(number) or not is_enough or number > DURATION_S_MAX * years_max:
        least = "zero or above" if may_be_zero else "above zero"
        most = "a year" if years_max == 1 else f"{years_max} years"
        raise ConfigurationError(
            f"{what} is {value!r}; it must be {least} and at most {most}.",
            hint=HINT,
            code="bad_duration",
        )
    return number


def aged_seconds(value: str, what: str) -> float:
    """Return `value`, the age at which something is deleted, as a positive number of seconds.

    Raises ConfigurationError for what is no duration, and for a number without a unit: 30 may have been meant as days.
    """
    if (match := _TEXT.fullmatch(value)) and not match[2]:
        raise ConfigurationError(
            f"{what} is {value!r}, which has no unit.",
            hint=f"Say which: {match[1]}d for days; ms, s, m and h are the others.",
            code="bad_duration",
        )
    return seconds(value, what, AGE_YEARS_MAX)


def _number(value: Duration, what: str) -> float:
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return math.inf if abs(value) > NUMBER_MAX else float(value)  # an int may be too long for a float
    if isinstance(value, str) and (match := _TEXT.fullmatch(value)):
        return float(match[1]) * _UNIT_S[match[2]]
    raise ConfigurationError(
        f'{what} is {value!r}, which is not a duration such as "30s", "5m" or 0.5.',
        hint=HINT,
        code="bad_duration",
    )
