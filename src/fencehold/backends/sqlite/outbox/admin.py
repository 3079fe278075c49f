"""The verbs on an outbox on SQLite that an operator calls: count, find, redrive and purge events."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite.outbox import rows as event_rows
from fencehold.backends.sqlite.outbox.hints import Neighbours
from fencehold.backends.sqlite.outbox.rows import Params
from fencehold.backends.sqlite.session import Session
from fencehold.ports.events import EventRow, Filter, Stats


class SqliteEventAdmin:
    def __init__(self, session: Session, statements: Statements, neighbours: Neighbours) -> None:
        self._session = session
        self._statements = statements
        self._neighbours = neighbours

    async def stats(self, limit_s: float, whole: bool = True) -> Stats:
        return event_rows.stats((await self._read("stats", {"whole": whole}, limit_s))[0])

    async def find(self, which: Filter, limit: int, limit_s: float) -> list[EventRow]:
        params = {**event_rows.filter_params(which), "limit": limit}
        return [event_rows.event_row(row) for row in await self._read("find", params, limit_s)]

    async def redrive(
        self, which: Filter, root_cause: str, limit: int, spread_s: float, limit_s: float, dry_run: bool = False
    ) -> list[str]:
        params = {
            **event_rows.filter_params(which), "root_cause": root_cause, "limit": limit, "spread": spread_s,
        }  # fmt: skip
        rows = await self._change("redrive", params, limit_s, dry_run)
        if rows and not dry_run:
            self._neighbours.notify()
        return [tracking_id for _, tracking_id in sorted(rows)]

    async def purge(self, which: Filter, limit: int, limit_s: float, dry_run: bool = False) -> int:
        params = event_rows.filter_params(which)
        if dry_run:
            [(count,)] = await self._read("purgeable", params, limit_s)
            return min(limit, int(count))

        def work(connection: sqlite3.Connection) -> int:
            rows = connection.execute(self._statements["purge"], {**params, "limit": limit}).fetchall()
            gone = json.dumps([tracking_id for (tracking_id,) in rows])
            connection.execute(self._statements["forget"], {"tracking_ids": gone})
            return len(rows)

        return await self._session.write(work, limit_s)

    async def _read(self, name: str, params: Params, limit_s: float) -> list[tuple[Any, ...]]:
        statement = self._statements[name]
        return await self._session.read(lambda c: c.execute(statement, params).fetchall(), limit_s)

    async def _change(self, name: str, params: Params, limit_s: float, dry_run: bool) -> list[tuple[Any, ...]]:
        """Run the statement and return its rows.

        With `dry_run` it is run too, and then undone, so the rows are exactly those of a real run.
        """

        def work(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            connection.execute("SAVEPOINT before")
            rows = connection.execute(self._statements[name], params).fetchall()
            if dry_run:
                connection.execute("ROLLBACK TO before")
            return rows

        return await self._session.write(work, limit_s)
