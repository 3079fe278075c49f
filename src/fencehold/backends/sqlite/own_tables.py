"""Tables of a service's own on SQLite: one thread for writes, one for fenced writes, one for reads.

Each transaction is one call on its thread, because a pause inside it would block all other writers of the file.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fencehold.backends.sql.fenced import BEFORE_COMMIT, REFUSED
from fencehold.backends.sql.own_rows import by_name
from fencehold.backends.sql.own_tables import OwnStatements, OwnTablesBase, ReaderBase
from fencehold.backends.sql.steps import driven
from fencehold.backends.sqlite.schema import SqliteSchema
from fencehold.backends.sqlite.session import Session, single
from fencehold.ports.own_tables import OPEN_LIMIT_S, HeldTerm, Row, Statement, Steps

CONVERTED = (dt.datetime, list)
WRITE_LIMIT_S = 10.0  # a fenced transaction keeps every other writer waiting at most this long

T = TypeVar("T")


class Refused(Exception):
    """Raised inside a fenced transaction to undo it: nothing was written. `args[0]` is the reason."""


class Unstorable(Exception):
    """Raised if a value cannot be stored, though the database works. `args[0]` is the driver's own error."""


class SqliteReader(ReaderBase):
    """Runs statements that only read, on a connection and a thread of its own."""

    def __init__(self, session: Session, statements: OwnStatements) -> None:
        self._session, self._statements = session, statements

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        return (await self.run_all([statement], limit_s))[0]

    async def run_all(self, statements: Sequence[Statement], limit_s: float) -> list[list[Row]]:
        return await self._session.read(lambda connection: self.all_on(connection, statements), limit_s)

    def all_on(self, connection: sqlite3.Connection, statements: Sequence[Statement]) -> list[list[Row]]:
        return [self.on(connection, statement) for statement in statements]

    def on(self, connection: sqlite3.Connection, statement: Statement) -> list[Row]:
        cursor = connection.execute(self._statements[statement.name], stored(statement.params))
        if cursor.description is None:
            return []
        return by_name(cursor.description, cursor.fetchall(), instant)

    async def close(self) -> None:
        await self._session.close()


class SqliteOwnTables(OwnTablesBase):
    dialect = "sqlite"

    def __init__(self, path: str, package: str, table: str, *, name: str) -> None:
        self._path = path
        self._writer = Session(path, f"{name}-write")
        self._fenced = Session(path, f"{name}-fenced")
        statements = OwnStatements(self.dialect, package, table)
        self._reader = SqliteReader(Session(path, f"{name}-read"), statements)
        super().__init__(statements, SqliteSchema(self._writer, statements))

    async def open(self, limit_s: float = OPEN_LIMIT_S) -> None:
        """Do nothing: the file may not exist before `init`, and every call opens it when that is needed."""

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._writer.call(lambda: unwritable(self._path), limit_s)

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        return (await self.run_all([statement], limit_s))[0]

    async def run_all(self, statements: Sequence[Statement], limit_s: float) -> list[list[Row]]:
        if all(self._statements.reads(one.name) for one in statements):
            return await self._reader.run_all(statements, limit_s)
        return await self._writer.write(lambda connection: self._reader.all_on(connection, statements), limit_s)

    async def _fenced_steps(self, term: HeldTerm, steps: Steps[T]) -> T:
        """Run the steps in one fenced transaction, as one call on the thread for fenced writes; return their result.

        Raises LeaseLost if the lease is lost; nothing is written then. Between BEGIN and COMMIT only SQLite and the
        steps run, never the event loop.
        """
        term.check()
        guard = term.guard()
        given_up = threading.Event()

        def work(connection: sqlite3.Connection) -> T:
            if not single(connection, f"SELECT {guard.sql}", guard.params):
                raise Refused(REFUSED)
            result = self._driven(connection, steps)
            if term.remaining_s <= 0:
                raise Refused(BEFORE_COMMIT)
            if given_up.is_set():
                raise Refused("nobody waits for the answer any more")
            return result

        try:
            return await self._fenced.write(work, min(term.remaining_s, WRITE_LIMIT_S))
        except Refused as error:
            raise term.lost(f"{error}; nothing was written") from None
        except Unstorable as error:
            raise error.args[0] from None
        finally:
            given_up.set()

    def _driven(self, connection: sqlite3.Connection, steps: Steps[T]) -> T:
        try:
            return driven(steps, lambda asked: self._reader.on(connection, asked))
        except (sqlite3.DataError, sqlite3.IntegrityError) as error:
            raise Unstorable(error) from error

    def reader(self) -> SqliteReader:
        return self._reader

    async def close(self) -> None:
        for session in (self._writer, self._fenced, self._reader):
            await session.close()


def unwritable(path: str) -> list[str]:
    """Return a text for each file permission that is missing; empty if the file can be written.

    SQLite has no rights of its own. The file and its folder must be writable, because the journal is in the folder.
    """
    places = (path, os.path.dirname(os.path.abspath(path)))
    return [f"write permission on {place}" for place in places if not os.access(place, os.W_OK)]


def instant(text: str) -> dt.datetime:
    """Return the time that the text says; without a zone, as CURRENT_TIMESTAMP writes it, it is UTC."""
    at = dt.datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)


def stored(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters in the form that SQLite takes: a time as text, a list as JSON for json_each()."""
    other = {name: _stored(value) for name, value in params.items() if isinstance(value, CONVERTED)}
    return {**params, **other} if other else params


def _stored(value: dt.datetime | list[Any]) -> str:
    return json.dumps(value) if isinstance(value, list) else stamp(value)


def stamp(at: dt.datetime) -> str:
    """Return the time as text in UTC with milliseconds, as strftime('%Y-%m-%dT%H:%M:%fZ', ...) of SQLite writes it."""
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
