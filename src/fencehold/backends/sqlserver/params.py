"""Turns parameters into what the driver takes: values by position, in the order that a statement's header declares."""

from __future__ import annotations

import datetime as dt
import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Stands for a missing text: for a NULL the driver would first have to ask the server for its type.
NO_TEXT = ""

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


@functools.lru_cache(maxsize=512)
def _positional(sql: str) -> tuple[str, tuple[str, ...]]:
    return _PARAMETER.sub("?", sql), tuple(_PARAMETER.findall(sql))


def bound(sql: str, params: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return `sql` with `?` for each `:name`, and the values in that order."""
    text, names = _positional(sql)
    return text, tuple(params[name] for name in names)


def rows_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the rows as one JSON text for OPENJSON; each row gets its position in the list as `place`."""
    return json.dumps([{"place": place, **row} for place, row in enumerate(rows)], ensure_ascii=False)


def listed(text: str) -> str:
    """Return a text as a JSON list contains it. Double quotes, backslashes and % are percent-encoded (%22, %5C, %25).

    Not every server that speaks T-SQL decodes JSON's own escapes. The statements decode the percent-encoding.
    """
    return text.replace("%", "%25").replace("\\", "%5C").replace('"', "%22")


def own(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service's own parameters as the driver takes them.

    None becomes NO_TEXT, a datetime becomes its text, and a list becomes one JSON text for OPENJSON: a list of rows, or
    a list of texts, each as `$.id`.
    """
    return {name: _own(value) for name, value in params.items()}


def _own(value: Any) -> Any:
    if value is None:
        return NO_TEXT
    if isinstance(value, list):
        return rows_json(_in_list(one if isinstance(one, Mapping) else {"id": one}) for one in value)
    return instant_text(value) if isinstance(value, dt.datetime) else value


def _in_list(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: listed(value) if isinstance(value, str) else _time(value) for name, value in row.items()}


def _time(value: Any) -> Any:
    return instant_text(value) if isinstance(value, dt.datetime) else value


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def instant_text(at: dt.datetime) -> str:
    """Return the time as a text in UTC that every datetime2 column takes."""
    return at.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def instant(naive: dt.datetime) -> dt.datetime:
    """Return the value of a datetime2 column as a time in UTC; the column itself has no time zone."""
    return naive.replace(tzinfo=dt.UTC)
