"""Makes dicts of the rows of a service's own tables, with times in UTC."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fencehold.ports.own_tables import Row


@functools.lru_cache(maxsize=512)
def times(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the columns that hold times, by their names: `now`, and names that end in `_at`."""
    return tuple(name for name in columns if name == "now" or name.endswith("_at"))


def by_name(
    description: Sequence[Sequence[Any]],
    found: Iterable[Sequence[Any]],
    instant: Callable[[Any], dt.datetime] | None,
) -> list[Row]:
    """Return the rows as dicts, by the names of the columns in `description` (the cursor's own).

    `instant` converts each value of a column that holds times; None: the values are right as they are.
    """
    columns = tuple([column[0] for column in description])
    rows = list(map(dict, map(zip, itertools.repeat(columns), found)))  # a comprehension takes two thirds more time
    if instant is None:
        return rows
    names = times(columns)
    known: dict[Any, dt.datetime | None] = {None: None}  # most rows have some of their times twice
    for row in rows:
        for name in names:
            value = row[name]
            if value not in known:
                known[value] = instant(value)
            row[name] = known[value]
    return rows
