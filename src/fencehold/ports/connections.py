"""Types, for type checkers, of a caller's own connections and sessions: what `term.fence(...)` and `tx=` take.

No driver is imported: each type lists the methods that a connection has. Whether the store's database can use the
connection is checked when the connection is given (ConfigurationError, `bad_connection`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias


class BlockingConnection(Protocol):
    """A connection of sqlite3, psycopg, mssql-python or SQLAlchemy, or a session of SQLAlchemy or SQLModel.

    A `scoped_session` is taken too.
    """

    @property
    def execute(self) -> Any: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class DjangoConnection(Protocol):
    """A connection of Django: `django.db.connections["default"]`."""

    @property
    def ensure_connection(self) -> Any: ...

    @property
    def cursor(self) -> Any: ...


class ConnectionProxy(Protocol):
    """A stand-in that passes every call on to a connection: `django.db.connection`, or what a pool of asyncpg lends."""

    def __getattr__(self, name: str, /) -> Any: ...


class AwaitedConnection(Protocol):
    """A connection of psycopg (AsyncConnection), aiosqlite or SQLAlchemy.

    Of SQLAlchemy: AsyncConnection, AsyncSession, `async_scoped_session`.
    """

    @property
    def execute(self) -> Any: ...

    def commit(self) -> Coroutine[Any, Any, None]: ...

    def rollback(self) -> Coroutine[Any, Any, None]: ...


class AsyncpgConnection(Protocol):
    """A connection of asyncpg."""

    @property
    def execute(self) -> Any: ...

    @property
    def is_in_transaction(self) -> Any: ...


SyncConnection: TypeAlias = BlockingConnection | DjangoConnection | ConnectionProxy
AsyncConnection: TypeAlias = AwaitedConnection | AsyncpgConnection

#: Any of them: `outbox.add(..., tx=connection)`.
Connection: TypeAlias = SyncConnection | AsyncConnection
