"""Events on SQLite: binds, runs and maps; the rules are in sql/outbox/."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from fencehold.backends.own_tables import OwnTables
from fencehold.backends.rounds import rounds
from fencehold.backends.sql_text import OUTBOX, Statements
from fencehold.backends.sqlite import event_rows
from fencehold.backends.sqlite.event_callers import CallerStatements
from fencehold.backends.sqlite.event_desk import SqliteEventDesk
from fencehold.backends.sqlite.event_hints import Neighbours, SqliteEventHints
from fencehold.backends.sqlite.event_rows import Row
from fencehold.backends.sqlite.leases import instant, modifier
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session
from fencehold.model import names
from fencehold.model.errors import ConfigurationError
from fencehold.model.events import Status
from fencehold.model.new_events import NewEvent
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, Failure, Key, Recovered, Turn


class SqliteEventPort:
    """Every verb is one write transaction: committed whole, or not at all."""

    def __init__(self, session: Session, statements: Statements, neighbours: Neighbours) -> None:
        self._session = session
        self._statements = statements
        self._neighbours = neighbours
        self._callers = CallerStatements(session.path, statements)

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        statement, made = self._statements["add"], list(events)

        def work(connection: sqlite3.Connection) -> list[str]:
            wrote = (connection.execute(statement, event_rows.add_params(event)).fetchall() for event in made)
            return [rows[0][0] for rows in wrote if rows]

        added = await self._session.write(work, limit_s)
        if added:
            self._neighbours.tell()
        return added

    def add_in(self, target: object, events: Sequence[NewEvent]) -> Awaitable[list[str]]:
        """Nobody is told here: the caller's commit changes the file, and whoever listens sees that."""

        def new(wrote: list[bool]) -> list[str]:
            return [event.tracking_id for event, is_new in zip(events, wrote, strict=True) if is_new]

        return self._callers.run(target, "add", [event_rows.add_params(event) for event in events], new)

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        def work(connection: sqlite3.Connection) -> Turn:
            done = [key for key, _ in self._change_keys(connection, "complete", completed, {})]
            return Turn(done, self._claim(connection, ask) if ask else [])

        return await self._session.write(work, limit_s)

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        def work(connection: sqlite3.Connection) -> dict[ClaimKey, dt.datetime]:
            lease = {"lease": modifier(lease_s)}
            return {key: instant(row[1]) for key, row in self._change_keys(connection, "renew", keys, lease)}

        return await self._session.write(work, limit_s)

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]:
        statement = self._statements["fail"]

        def work(connection: sqlite3.Connection) -> list[tuple[ClaimKey, Status]]:
            failed: list[tuple[ClaimKey, Status]] = []
            for some in rounds(failures, lambda failure: failure.key.id):
                statuses = dict(connection.execute(statement, {"failures": event_rows.failures_param(some)}).fetchall())
                failed += [(f.key, Status(statuses[f.key.id])) for f in some if f.key.id in statuses]
            return failed

        return await self._session.write(work, limit_s)

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        def work(connection: sqlite3.Connection) -> list[ClaimKey]:
            return [key for key, _ in self._change_keys(connection, "release", keys, {})]

        released = await self._session.write(work, limit_s)
        if released:
            self._neighbours.tell()
        return released

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        def work(connection: sqlite3.Connection) -> list[Recovered]:
            stuck = {row[0]: row for row in connection.execute(self._statements["lapsed"], {"limit": limit})}
            ids = event_rows.ids_param(list(stuck))
            rows = {row[0]: row for row in connection.execute(self._statements["reap"], {"ids": ids}).fetchall()}
            connection.execute(self._statements["reaped"], {"recovered": len(rows)})
            return [event_rows.recovered(rows[event_id], row) for event_id, row in stuck.items()]

        recovered = await self._session.write(work, limit_s)
        if any(one.status is Status.PENDING for one in recovered):
            self._neighbours.tell()
        return recovered

    def _claim(self, connection: sqlite3.Connection, ask: ClaimAsk) -> list[Claim]:
        statement = self._statements["claim_in_order" if ask.in_order else "claim"]
        return event_rows.claims(connection.execute(statement, event_rows.ask_params(ask)).fetchall(), ask.token)

    def _change_keys(
        self, connection: sqlite3.Connection, statement: str, keys: Sequence[Any], params: dict[str, str]
    ) -> list[tuple[Any, Row]]:
        """The keys that were not refused, as they were given, each with its row."""
        changed: list[tuple[ClaimKey, Row]] = []
        for some in rounds(keys, lambda key: key.id):
            bound = {"keys": event_rows.keys_param(some), **params}
            rows = {row[0]: row for row in connection.execute(self._statements[statement], bound).fetchall()}
            changed += [(key, rows[key.id]) for key in some if key.id in rows]
        return changed


class SqliteEvents(OwnTables):
    """One outbox in one event loop, on a connection and a thread of its own."""

    def __init__(self, path: str, table: str) -> None:
        if "." in names.table_name(table):
            raise ConfigurationError("SQLite has no schemas.", hint="Use a table name without a dot.", code="bad_name")
        statements = Statements(__package__, table, topic=OUTBOX)
        neighbours = Neighbours(path, table)
        self._is_closed = False
        self._session = Session(path, "fencehold-sqlite-events")
        super().__init__(SqliteSchema(self._session, statements))
        self.port = SqliteEventPort(self._session, statements, neighbours)
        self.desk = SqliteEventDesk(self._session, statements, neighbours)
        self.hints = SqliteEventHints(self._session, statements, neighbours)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.hints.close()
            await self._session.close()
