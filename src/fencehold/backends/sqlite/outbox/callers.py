"""Runs `add` and `first_time` of an outbox inside a transaction that the caller owns."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fencehold.backends.ready import Ready
from fencehold.backends.sql import begin_hints, wrong_store
from fencehold.backends.sql import caller_session as sql_session
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.fences import DIALECT
from fencehold.backends.sqlite.file.of_caller import elsewhere, main_file, main_of
from fencehold.backends.sqlite.outbox.rows import Params
from fencehold.model.errors import ConfigurationError, FenceholdError

T = TypeVar("T")
Finish = Callable[[list[bool]], T]


class CallerStatements:
    """Runs a statement on the caller's connection; never begins or ends a transaction itself."""

    def __init__(self, path: str, statements: Statements) -> None:
        self._path = path
        self._statements = statements

    def run(self, target: object, name: str, batch: Sequence[Params], finish: Finish[T]) -> Awaitable[T]:
        """Run the statement for each of the batch; `finish` gets a list of whether each wrote a row.

        On a sync connection all is done when this returns.
        """
        return begin_hints.advised(target, lambda: self._run(target, name, batch, finish))

    def _run(self, target: object, name: str, batch: Sequence[Params], finish: Finish[T]) -> Awaitable[T]:
        target = sql_session.unwrapped(target, DIALECT)
        if isinstance(target, sqlite3.Connection):
            return Ready(finish(self._on_connection(target, name, batch)))
        if sql_session.is_sqlalchemy(target, DIALECT):
            if sql_session.is_async(target):
                return self._on_async_session(target, name, batch, finish)
            return Ready(finish(self._on_session(target, name, batch)))
        raise not_ours(target)

    def _on_connection(self, target: sqlite3.Connection, name: str, batch: Sequence[Params]) -> list[bool]:
        try:
            must_be_in_transaction(target)
            self._must_be_our_file(main_file(target, self._statements["file"]))
            wrote = [bool(target.execute(self._statements[name], params).fetchall()) for params in batch]
        except sqlite3.Error as error:
            raise self._told(error) from error
        if batch and not target.in_transaction:
            raise outside_transaction("It was written at once.")
        return wrote

    def _on_session(self, target: Any, name: str, batch: Sequence[Params]) -> list[bool]:
        driver = sql_session.driver_connection(target)
        if not isinstance(driver, sqlite3.Connection):
            raise not_ours(driver)
        must_be_in_transaction(driver)
        self._must_be_our_file(main_file(driver, self._statements["file"]))
        sql = self._statements.named(name)
        try:
            return [bool(sql_session.run(target, sql, params)) for params in batch]
        except Exception as error:
            raise self._sorted(error) from error

    async def _on_async_session(self, target: Any, name: str, batch: Sequence[Params], finish: Finish[T]) -> T:
        driver = await sql_session.driver_connection_async(target)
        if type(driver).__module__.partition(".")[0] != "aiosqlite":
            raise not_ours(driver)
        must_be_in_transaction(driver)
        rows = await sql_session.run_async(target, self._statements.named("file"), {})
        self._must_be_our_file(main_of(rows))
        sql = self._statements.named(name)
        try:
            return finish([bool(await sql_session.run_async(target, sql, params)) for params in batch])
        except Exception as error:
            raise self._sorted(error) from error

    def _must_be_our_file(self, found: Sequence[str | bytes]) -> None:
        if where := elsewhere(found, self._path):
            raise wrong_store.of_outbox(self._statements.table, where)

    def _sorted(self, error: Exception) -> Exception:
        """Return our error for a driver's error inside SQLAlchemy's; any other error unchanged."""
        cause = getattr(error, "orig", None)
        return self._told(cause) if isinstance(cause, sqlite3.Error) else error

    def _told(self, error: sqlite3.Error) -> FenceholdError:
        return faults.of_statement(error, self._path, self._statements)


def must_be_in_transaction(connection: Any) -> None:
    """Raises ConfigurationError (add_outside_transaction) if no transaction is open.

    None need be open in the mode in which Python itself begins one before the first write.
    """
    begins_itself = connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
    if not connection.in_transaction and not begins_itself:
        raise outside_transaction("Nothing was written.")


def outside_transaction(what_happened: str) -> ConfigurationError:
    return ConfigurationError(
        "The connection given as tx is in autocommit and in no transaction: the event would be stored even if your own "
        f"change is not. {what_happened}",
        hint='Run "BEGIN IMMEDIATE" first, or leave tx out.',
        code="add_outside_transaction",
    )


def not_ours(target: object) -> ConfigurationError:
    return ConfigurationError(
        f"tx cannot be a {sql_session.kind_of(target)}; nothing was written.",
        hint="Give a connection of sqlite3, aiosqlite or Django, or a SQLAlchemy session or connection, to the file of "
        "the outbox; or leave tx out.",
        code="bad_connection",
    )
