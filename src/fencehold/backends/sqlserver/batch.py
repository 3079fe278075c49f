"""Runs one batch of SQL on an open connection: sets its limits, returns its rows, repeats it after a deadlock."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fencehold.backends.sqlserver import driver, faults
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.params import bound

DEADLOCK_TRIES = 5
DEADLOCK_PAUSE_S = 0.02

Rows = list[tuple[Any, ...]]
T = TypeVar("T")
Execute = Callable[[driver.Connection, str, tuple[Any, ...]], T]


def rows(connection: driver.Connection, text: str, values: tuple[Any, ...] = ()) -> Rows:
    """Run the batch and return the rows of its only result set; an empty list if it has no result set."""
    with contextlib.closing(connection.cursor()) as cursor:
        return rows_on(cursor, text, values)


def rows_on(cursor: driver.Cursor, text: str, values: tuple[Any, ...]) -> Rows:
    """Run the batch on an open cursor and return the rows of its first result set; an empty list if it has none.

    Some servers send row counts before the result set; these are skipped.
    """
    cursor.execute(text, *values)
    while not cursor.description:
        if not cursor.nextset():
            return []
    return [tuple(row) for row in cursor.fetchall()]


def run(line: Line, sql: str, params: Mapping[str, Any], limit_s: float) -> Rows:
    """Run the batch on the connection of `line` and return its rows. The caller is on the line's thread.

    Raises the driver's errors.
    """
    return read(line, sql, params, limit_s, rows)


def read(line: Line, sql: str, params: Mapping[str, Any], limit_s: float, execute: Execute[T]) -> T:
    """Run the batch and return what `execute(connection, text, values)` returns for it. Raises the driver's errors.

    If the server ends the batch to resolve a deadlock, the whole batch was rolled back, so it is run again.
    """
    ends_s = time.monotonic() + limit_s
    text, values = bound(sql, params)
    for tries in range(1, DEADLOCK_TRIES + 1):
        try:
            bounded(line, ends_s - time.monotonic())
            return execute(line.connection, text, values)
        except driver.Error as error:
            if not faults.is_deadlock(error) or tries == DEADLOCK_TRIES or time.monotonic() >= ends_s:
                raise
            time.sleep(random.uniform(0, DEADLOCK_PAUSE_S * tries))
    raise AssertionError("the last try returns or raises")


def bounded(line: Line, limit_s: float) -> None:
    """Set two limits on the connection: for waiting for a lock, and for the whole statement.

    The lock limit is below `limit_s`, so that the server answers before the caller stops waiting. It is rounded down to
    a power of two, so that it rarely changes and is rarely sent; the statement's limit is in whole seconds.
    """
    line.connection.timeout = max(1, math.ceil(limit_s))
    wait_ms = 2 ** int(math.log2(max(1.0, limit_s * 900)))
    if line.lock_timeout_ms != wait_ms:
        rows(line.connection, f"SET LOCK_TIMEOUT {wait_ms:d}")
        line.lock_timeout_ms = wait_ms
