"""Our statements in a transaction that a caller owns, on SQLite.

A refused transaction is rolled back: SQLite has no open transaction that has failed and cannot commit any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeGuard

from fencehold.backends.sql import wrong_store
from fencehold.backends.sql.callers.connections import (
    CallersAsyncConnection,
    CallersConnection,
    CallersSyncConnection,
    Params,
    Rows,
    Run,
    Steps,
)
from fencehold.backends.sql.callers.dialect import Dialect, Refusals
from fencehold.backends.sql.callers.fence import CallersFence
from fencehold.backends.sql.callers.kinds import is_class, is_of
from fencehold.backends.sql.callers.outbox import CallersOutbox
from fencehold.backends.sql.fenced import lost
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.file.of_caller import elsewhere
from fencehold.backends.sqlite.outbox import rows as event_rows
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import FenceholdError
from fencehold.model.outbox.new_events import NewEvent


class _OfSqlite(CallersConnection):
    """What a caller's connections of sqlite3 and aiosqlite have in common.

    Our statements use a cursor of our own, because the caller's row factory may return anything.
    """

    @property
    def in_transaction(self) -> bool:
        return bool(self.target.in_transaction)


class Sqlite3(_OfSqlite, CallersSyncConnection):
    def run(self, name: str, params: Params) -> Rows:
        cursor = self.target.cursor()
        cursor.row_factory = None
        found: Rows = cursor.execute(self.statements[name], dict(params)).fetchall()
        return found

    def roll_back(self) -> None:
        """Roll back. With `autocommit=True` (since Python 3.12), rollback() does nothing, so a statement does it."""
        self.target.rollback()
        if getattr(self.target, "autocommit", None) is True and self.target.in_transaction:
            self.target.execute(self.statements["poison"])


class Aiosqlite(_OfSqlite, CallersAsyncConnection):
    """A caller's connection of aiosqlite, a library that this module does not import."""

    keeps_errors = True

    async def run(self, name: str, params: Params) -> Rows:
        async with self.target.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(self.statements[name], dict(params))
            return [tuple(row) for row in await cursor.fetchall()]

    async def roll_back(self) -> None:
        """Roll back; if the transaction is still open after rollback(), a statement rolls it back.

        rollback() does nothing with `autocommit=True`, but that setting can be read only on the connection's own
        thread.
        """
        await self.target.rollback()
        if self.target.in_transaction:
            await self.target.execute(self.statements["poison"])


class SqliteDialect(Dialect):
    """SQLite, as our work in callers' transactions uses it.

    `path`: the store's file. A caller's connection must lead to the same file.
    """

    name = "sqlite"
    takes = "Give a connection of sqlite3, aiosqlite or Django, or a SQLAlchemy session or connection"
    takes_as_tx = ", to the file of the outbox; or leave tx out."
    begin = 'Run "BEGIN IMMEDIATE" first'
    refused = "rolled back"

    def __init__(self, path: str) -> None:
        self.path = path

    def own(self, target: object, statements: Statements, given: object) -> CallersConnection | None:
        if isinstance(target, sqlite3.Connection):
            return Sqlite3(target, statements, given)
        return Aiosqlite(target, statements, given) if is_class(target, "aiosqlite.Connection") else None

    def write(
        self, connection: CallersConnection, name: str, batch: Sequence[Params], refusals: Refusals
    ) -> Steps[list[Rows]]:
        driver = connection.driver
        if not isinstance(driver, sqlite3.Connection) and not is_of(driver, "aiosqlite"):
            raise refusals.bad_connection(driver)
        if not driver.in_transaction and not begins_itself(driver):
            raise refusals.outside(connection)
        if where := (yield from self.other_file(connection)):
            raise refusals.elsewhere(where)
        answers = yield from super().write(connection, name, batch, refusals)
        if batch and not driver.in_transaction:
            raise refusals.outside(connection, "It was written at once.")
        return answers

    def other_file(self, connection: CallersConnection) -> Steps[str]:
        """Return in words to which file the connection leads; empty if it leads to the store's file, as it should."""
        return elsewhere((yield Run("file")), self.path)

    def is_elsewhere(self, error: Exception) -> bool:
        """Always False: the files were compared before, so missing tables are missing in the store's own file."""
        return False

    def fault(self, error: Exception, statements: Statements) -> BaseException:
        cause = getattr(error, "orig", error)
        return faults.of_statement(cause, self.path, statements) if isinstance(cause, sqlite3.Error) else error


class SqliteFence(CallersFence):
    """The fence on SQLite: a statement that checks the lease and takes the file's write lock in a caller's transaction.

    From this statement to the end of the transaction nobody else can write to the file, so nobody can take the lease
    over.
    """

    dialect: SqliteDialect

    def __init__(self, path: str, statements: Statements) -> None:
        super().__init__(SqliteDialect(path), statements)

    def ask(self, connection: CallersConnection, key: TermKey) -> Steps[FenceholdError | None]:
        rows: Rows = []
        try:
            rows = yield Run("fence", params(key))
        except Exception as error:
            if not is_missing(error):
                if connection.keeps_errors or not is_of_database(error):
                    raise
                raise faults.of_statement(error, self.dialect.path) from error
        if is_held(rows):
            if not connection.driver.in_transaction:
                raise self.outside(connection)
            return None
        if any(is_there for _, is_there in rows):
            return lost(key, "the store refused the fence; this transaction was rolled back")
        return wrong_store.of_fence(key, (yield from self.dialect.other_file(connection)), wrong_store.ROLLED_BACK)


class SqliteCallersOutbox(CallersOutbox):
    def __init__(self, path: str, statements: Statements) -> None:
        super().__init__(SqliteDialect(path), statements, run=None)  # the files are compared instead

    def batch(self, events: Sequence[NewEvent], outbox_id: str) -> Sequence[Params]:
        return [event_rows.add_params(event) for event in events]

    def ids_added(self, connection: CallersConnection, batch: Sequence[Params], answers: Sequence[Rows]) -> list[str]:
        return [params["tracking_id"] for params, rows in zip(batch, answers, strict=True) if rows]

    def is_first(self, connection: CallersConnection, rows: Rows) -> bool:
        return bool(rows)


def params(key: TermKey) -> dict[str, Any]:
    return {"name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id}


def is_held(rows: Rows) -> bool:
    """Whether the lease exists, is ours and is live, from the rows that the statement `fence` returned."""
    return any(held for held, _ in rows)


def is_missing(error: Exception) -> bool:
    """Whether the error says that our table, or its newest column, is not in the caller's file.

    The store's own file has it, so the connection leads to another file.
    """
    cause = getattr(error, "orig", error)
    return isinstance(cause, sqlite3.Error) and wrong_store.is_elsewhere(faults.of_statement(cause, ""))


def is_of_database(error: Exception) -> TypeGuard[sqlite3.Error]:
    """Whether the error comes from SQLite, not from a misuse: a closed connection, or a use from the wrong thread."""
    return isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.ProgrammingError)


def begins_itself(driver: Any) -> bool:
    """Whether Python begins a transaction before each write: a mode of connections of sqlite3 and aiosqlite."""
    return driver.isolation_level is not None and getattr(driver, "autocommit", None) is not True
