"""Raw connections of async drivers that are not ours: asyncpg for PostgreSQL, aiosqlite for SQLite.

Each runs our statements in the transaction that its caller has begun. None begins or ends a transaction itself, except
to roll back when a fence is refused. Neither driver is imported here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from fencehold.backends.sql.statements import numbered

Rows = list[tuple[Any, ...]]


class RawAsync(ABC):
    """`connection` is the driver's own; `dialect` is the kind of database that the driver is for."""

    dialect = ""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    async def run(self, sql: str, params: Mapping[str, Any]) -> Rows:
        """Rows of a statement with `:name` parameters."""

    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    async def rollback(self) -> None:
        """After this, nothing that was begun and not yet committed can be committed."""


class Asyncpg(RawAsync):
    dialect = "postgresql"

    async def run(self, sql: str, params: Mapping[str, Any]) -> Rows:
        text, names = numbered(sql)
        return [tuple(row) for row in await self.connection.fetch(text, *(params[name] for name in names))]

    def in_transaction(self) -> bool:
        return bool(self.connection.is_in_transaction())

    async def rollback(self) -> None:
        """End the connection: asyncpg does not report a savepoint, from which the rest could be committed."""
        self.connection.terminate()


class Aiosqlite(RawAsync):
    dialect = "sqlite"

    async def run(self, sql: str, params: Mapping[str, Any]) -> Rows:
        async with self.connection.cursor() as cursor:
            cursor.row_factory = None  # the caller's own may return any type
            await cursor.execute(sql, dict(params))
            return [tuple(row) for row in await cursor.fetchall()]

    def in_transaction(self) -> bool:
        return bool(self.connection.in_transaction)

    async def rollback(self) -> None:
        """Roll back, and run ROLLBACK if a transaction is still open after that.

        With `autocommit=True`, since Python 3.12, rollback() does nothing. That setting can be read only on the
        connection's own thread, so this checks whether a transaction is still open.
        """
        await self.connection.rollback()
        if self.in_transaction():
            await self.connection.execute("ROLLBACK")


def raw_async(target: object, dialect: str) -> RawAsync | None:
    """Return the connection wrapped; None if it is not of these drivers, or is for another kind of database."""
    for base in type(target).__mro__:
        kind = KNOWN.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
        if kind is not None:
            return kind(target) if kind.dialect == dialect else None
    return None


KNOWN: dict[str, type[RawAsync]] = {
    "asyncpg.Connection": Asyncpg,
    "asyncpg.PoolConnectionProxy": Asyncpg,  # what a pool lends in place of a connection
    "aiosqlite.Connection": Aiosqlite,
}
