"""The results of a statement in a fenced transaction, with the methods of a cursor. All rows are read already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any


class Rows:
    """The rows of a statement's first result set, for blocking code.

    `rowcount` is that of the statement's first result, which may have no rows; `description` is that of the rows.
    """

    def __init__(self, cursor: Any) -> None:
        self.rows: list[Any] = []
        self.rowcount: int = cursor.rowcount
        self.description: Any = None
        while True:  # an error after the first result is raised only when the next one is read
            if cursor.description and self.description is None:
                self.description = cursor.description
                self.rows = list(cursor.fetchall())
            if not cursor.nextset():
                return

    def fetchone(self) -> Any:
        return self.rows.pop(0) if self.rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        some, self.rows = self.rows[:size], self.rows[size:]
        return some

    def fetchall(self) -> list[Any]:
        return self.fetchmany(len(self.rows))

    def __iter__(self) -> Iterator[Any]:
        while self.rows:
            yield self.rows.pop(0)


class Result:
    """The rows of a statement's first result set, for async code; otherwise the same as `Rows`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.rowcount = rows.rowcount
        self.description = rows.description

    async def fetchone(self) -> Any:
        return self._rows.fetchone()

    async def fetchmany(self, size: int = 1) -> list[Any]:
        return self._rows.fetchmany(size)

    async def fetchall(self) -> list[Any]:
        return self._rows.fetchall()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._rows:
            yield row
