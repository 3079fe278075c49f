"""SQLAlchemy's sessions and connections (SQLModel's among them), with any driver. SQLAlchemy need not be installed."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from fencehold.backends.sql.callers.connections import CallersConnection, CallersSyncConnection, Params, Rows, StepsOn
from fencehold.backends.sql.callers.kinds import dialect_of, is_of
from fencehold.backends.sql.statements import Statements

T = TypeVar("T")


def alchemy(target: Any, dialect: str, statements: Statements, given: object) -> CallersConnection | None:
    """Return the session or connection wrapped; None if it is not of SQLAlchemy, or for another kind of database."""
    if not is_sqlalchemy(target, dialect):
        return None
    return (AsyncAlchemy if is_of(target, "sqlalchemy.ext.asyncio") else Alchemy)(target, statements, given)


def is_sqlalchemy(target: Any, dialect: str) -> bool:
    """Whether `target` is of SQLAlchemy, executes statements (unlike an engine or a transaction), and has this dialect.

    The dialect of a session with another engine for each table is not known, and passes.
    """
    return is_of(target, "sqlalchemy") and hasattr(target, "execute") and dialect_of(target) in (dialect, "")


class Alchemy(CallersSyncConnection):
    """A sync session or connection."""

    @functools.cached_property
    def _connection(self) -> Any:
        """A session's connection, or `target` itself. SQLModel's own execute() is deprecated, and warns."""
        return self.target.connection() if callable(getattr(self.target, "connection", None)) else self.target

    @property
    def driver(self) -> Any:
        return self._connection.connection.driver_connection

    @property
    def is_autocommit(self) -> bool:
        """All drivers under SQLAlchemy show it."""
        return getattr(self._connection.connection.dbapi_connection, "autocommit", False) is True

    @property
    def in_transaction(self) -> bool:
        return bool(self.target.in_transaction())

    @property
    def in_savepoint(self) -> bool:
        return bool(self._connection.in_nested_transaction())

    def run(self, name: str, params: Params) -> Rows:
        result = self._connection.execute(prepared(self.statements.named(name)), dict(params))
        return [tuple(row) for row in result] if result.returns_rows else []

    def roll_back(self) -> None:
        self.target.rollback()

    def close(self) -> None:
        """Invalidate the driver's connection: SQLAlchemy refuses all statements until everything is rolled back."""
        self._connection.invalidate()


class AsyncAlchemy(CallersConnection):
    """An AsyncSession or AsyncConnection: SQLAlchemy runs the steps on the sync one inside it."""

    async def perform(self, steps_on: StepsOn[T]) -> T:
        result: T = await self.target.run_sync(
            lambda inner: Alchemy(inner, self.statements, self.given).drive(steps_on)
        )
        return result


@functools.lru_cache(maxsize=512)
def prepared(sql: str) -> Any:
    """`sql` with `:name` parameters as SQLAlchemy's text()."""
    from sqlalchemy import text

    return text(sql)
