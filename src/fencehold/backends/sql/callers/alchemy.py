"""Sessions and connections of SQLAlchemy (SQLModel's among them) that callers give, with any driver.

SQLAlchemy need not be installed.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from fencehold.backends.sql.callers.connections import CallersConnection, CallersSyncConnection, Params, Rows, StepsOn
from fencehold.backends.sql.callers.kinds import dialect_of, is_of
from fencehold.backends.sql.statements import Statements

T = TypeVar("T")


def alchemy(target: Any, dialect: str, statements: Statements, given: object) -> CallersConnection | None:
    """Return `target` as one of our kinds of connection.

    None if it is not a session or connection of SQLAlchemy, or if it is for another kind of database.
    """
    if not is_sqlalchemy(target, dialect):
        return None
    return (AsyncAlchemy if is_of(target, "sqlalchemy.ext.asyncio") else Alchemy)(target, statements, given)


def is_sqlalchemy(target: Any, dialect: str) -> bool:
    """Whether `target` is a session or connection of SQLAlchemy for a database of this dialect.

    An engine and a transaction are not: they execute no statements. A session that uses several engines has no known
    dialect, and counts.
    """
    return is_of(target, "sqlalchemy") and hasattr(target, "execute") and dialect_of(target) in (dialect, "")


class Alchemy(CallersSyncConnection):
    """A sync session or connection of SQLAlchemy that a caller gave."""

    @functools.cached_property
    def _connection(self) -> Any:
        """The connection of a session, or `target` if it is a connection itself.

        Statements use it, because SQLModel's own session.execute() is deprecated and warns.
        """
        return self.target.connection() if callable(getattr(self.target, "connection", None)) else self.target

    @property
    def driver(self) -> Any:
        return self._connection.connection.driver_connection

    @property
    def is_autocommit(self) -> bool:
        """Whether each write is committed at once, as the driver's connection shows."""
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
        """Invalidate the driver's connection.

        SQLAlchemy then refuses every statement until the caller has rolled everything back.
        """
        self._connection.invalidate()


class AsyncAlchemy(CallersConnection):
    """An AsyncSession or AsyncConnection of SQLAlchemy; our statements run on the sync one that it contains."""

    async def perform(self, steps_on: StepsOn[T]) -> T:
        result: T = await self.target.run_sync(
            lambda inner: Alchemy(inner, self.statements, self.given).drive(steps_on)
        )
        return result


@functools.lru_cache(maxsize=512)
def prepared(sql: str) -> Any:
    """Return the statement `sql`, with `:name` parameters, as a text() of SQLAlchemy."""
    from sqlalchemy import text

    return text(sql)
