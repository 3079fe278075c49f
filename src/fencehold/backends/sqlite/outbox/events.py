"""Events on SQLite: sets parameters, runs statements and turns rows into events. The rules are in sql/outbox/."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from fencehold.backends.sql.rounds import rounds
from fencehold.backends.sql.statements import OUTBOX, Statements
from fencehold.backends.sqlite.callers import SqliteCallersOutbox
from fencehold.backends.sqlite.leases import instant, modifier
from fencehold.backends.sqlite.outbox import rows as event_rows
from fencehold.backends.sqlite.outbox.admin import SqliteEventAdmin
from fencehold.backends.sqlite.outbox.hints import Neighbours, SqliteEventHints
from fencehold.backends.sqlite.outbox.rows import Row
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session
from fencehold.model import names
from fencehold.model.errors import ConfigurationError
from fencehold.model.outbox.new_events import NewEvent
from fencehold.model.outbox.rules import Status
from fencehold.ports.events import ClaimAsk, ClaimKey, Failure, Key, Recovered, Turn
from fencehold.ports.facts import FactSink


class SqliteEventPort:
    """The verbs of producers, workers and the reaper. Each is one write transaction: committed whole, or not at all.

    Parameters are made before the transaction, and rows become events after it, so that it is short.
    """

    def __init__(self, session: Session, statements: Statements, neighbours: Neighbours) -> None:
        self._session = session
        self._statements = statements
        self._neighbours = neighbours

    async def add(self, events: Iterable[NewEvent], limit_s: float) -> list[str]:
        statement, batch = self._statements["add"], [event_rows.add_params(event) for event in events]

        def work(connection: sqlite3.Connection) -> list[list[Row]]:
            return [connection.execute(statement, params).fetchall() for params in batch]

        added = [tracking_id for rows in await self._session.write(work, limit_s) for (tracking_id,) in rows]
        if added:
            self._neighbours.notify()
        return added

    async def turn(self, completed: Sequence[Key], ask: ClaimAsk | None, limit_s: float) -> Turn:
        change = KeyChange(self._statements["complete"], completed)
        claim = self._statements["claim_in_order" if ask and ask.in_order else "claim"]
        params = event_rows.ask_params(ask) if ask else None

        def work(connection: sqlite3.Connection) -> tuple[list[list[Row]], list[Row]]:
            return change.run(connection), connection.execute(claim, params).fetchall() if params else []

        done, claimed = await self._session.write(work, limit_s)
        return Turn([key for key, _ in change.answers(done)], event_rows.claims(claimed, ask.token) if ask else [])

    async def renew(self, keys: Sequence[ClaimKey], lease_s: float, limit_s: float) -> dict[ClaimKey, dt.datetime]:
        change = KeyChange(self._statements["renew"], keys, {"lease": modifier(lease_s)})
        done = await self._session.write(change.run, limit_s)
        return {key: instant(until) for key, (until,) in change.answers(done)}

    async def fail(self, failures: Sequence[Failure], limit_s: float) -> list[tuple[ClaimKey, Status]]:
        statement, parts = self._statements["fail"], rounds(failures, lambda failure: failure.key.id)
        batch = [{"failures": event_rows.failures_param(some)} for some in parts]

        def work(connection: sqlite3.Connection) -> list[list[Row]]:
            return [connection.execute(statement, params).fetchall() for params in batch]

        failed: list[tuple[ClaimKey, Status]] = []
        for some, rows in zip(parts, await self._session.write(work, limit_s), strict=True):
            statuses: dict[int, str] = dict(rows)
            failed += [(f.key, Status(statuses[f.key.id])) for f in some if f.key.id in statuses]
        return failed

    async def release(self, keys: Sequence[ClaimKey], limit_s: float) -> list[ClaimKey]:
        change = KeyChange(self._statements["release"], keys)
        released = [key for key, _ in change.answers(await self._session.write(change.run, limit_s))]
        if released:
            self._neighbours.notify()
        return released

    async def reap(self, limit: int, limit_s: float) -> list[Recovered]:
        def work(connection: sqlite3.Connection) -> tuple[list[Row], list[Row]]:
            stuck = connection.execute(self._statements["lapsed"], {"limit": limit}).fetchall()
            ids = event_rows.ids_param([event_id for event_id, *_ in stuck])
            reaped = connection.execute(self._statements["reap"], {"ids": ids}).fetchall()
            connection.execute(self._statements["reaped"], {"recovered": len(reaped)})
            return stuck, reaped

        stuck, reaped = await self._session.write(work, limit_s)
        become = {event_id: others for event_id, *others in reaped}
        recovered = [event_rows.recovered(event_id, *become[event_id], *was) for event_id, *was in stuck]
        if any(one.status is Status.PENDING for one in recovered):
            self._neighbours.notify()
        return recovered


class KeyChange:
    """A statement that changes the rows of many keys, with its parameters.

    A statement answers by id, so if an id occurs twice among the keys, the statement runs twice.
    """

    def __init__(self, statement: str, keys: Sequence[Any], params: dict[str, str] | None = None) -> None:
        self._statement = statement
        self._parts = rounds(keys, lambda key: key.id)
        self._batch = [{"keys": event_rows.keys_param(some), **(params or {})} for some in self._parts]

    def run(self, connection: sqlite3.Connection) -> list[list[Row]]:
        return [connection.execute(self._statement, params).fetchall() for params in self._batch]

    def answers(self, done: list[list[Row]]) -> list[tuple[Any, list[Any]]]:
        """Return the keys whose rows were changed, each with the values that follow the id in its row.

        `done` is what `run` returned.
        """
        changed: list[tuple[Any, list[Any]]] = []
        for some, found in zip(self._parts, done, strict=True):
            rows = {event_id: others for event_id, *others in found}
            changed += [(key, rows[key.id]) for key in some if key.id in rows]
        return changed


class SqliteEvents:
    """One outbox in one event loop. All its parts share one connection, which has a thread of its own."""

    def __init__(self, path: str, table: str, facts: FactSink | None = None) -> None:
        if "." in names.table_name(table):
            raise ConfigurationError("SQLite has no schemas.", hint="Use a table name without a dot.", code="bad_name")
        statements = Statements("fencehold.backends.sqlite", table, topic=OUTBOX)
        neighbours = Neighbours(path, table)
        self._session = Session(path, "fencehold-sqlite-events", statements, facts)
        self.schema = SqliteSchema(self._session, statements)
        self.port = SqliteEventPort(self._session, statements, neighbours)
        self.in_tx = SqliteCallersOutbox(path, statements)  # no hint: the caller's commit changes the file
        self.admin = SqliteEventAdmin(self._session, statements, neighbours)
        self.hints = SqliteEventHints(self._session, statements, neighbours)

    async def close(self) -> None:
        self.hints.close()
        await self._session.close()
