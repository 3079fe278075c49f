"""The fence: puts the lease check inside the caller's write, so that a stale writer cannot commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from fencehold.model.election.rules import TermKey

T = TypeVar("T")
RemainingS = Callable[[], float]
Params = Sequence[Any] | Mapping[str, Any] | None


class Composable(Protocol):
    """A statement that psycopg composes: `psycopg.sql.SQL(...)`."""

    def as_bytes(self, context: Any = None, /) -> bytes: ...


#: A text with the driver's own placeholders. PostgreSQL takes bytes and `psycopg.sql` too; the store in memory has no
#: SQL and takes Python functions instead.
Statement: TypeAlias = str | bytes | Composable | Callable[[], object]


class Cursor(Protocol):
    """The result of a statement: what the cursors of all databases have in common. The driver decides what a row is.

    psycopg's and SQL Server's cursors have more (`fetchmany`, `description`, `async for`); the store in memory returns
    None instead of a cursor.
    """

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed; -1 if the driver does not know."""
        ...

    async def fetchone(self) -> Any:
        """The next row; None when there is none."""
        ...

    async def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...


class SyncCursor(Protocol):
    """As `Cursor`, for programs without an event loop."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed; -1 if the driver does not know."""
        ...

    @property
    def description(self) -> Any:
        """The columns of the rows, as the DB-API describes them; None if the statement returns no rows."""
        ...

    def fetchone(self) -> Any:
        """The next row; None when there is none."""
        ...

    def fetchmany(self, size: int = ..., /) -> list[Any]:
        """The next `size` rows, or those that are left."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """An open fenced transaction. It commits when its block ends without an error, and only while the epoch holds."""

    @property
    def connection(self) -> Any:
        """The driver's own connection: of sqlite3, psycopg or mssql-python. Leave commit and rollback to the block."""
        ...

    async def execute(self, statement: Statement, params: Params = None) -> Cursor:
        """Run the statement in the transaction. Raises LeaseLost instead once the term is over."""
        ...


class SyncTransaction(Protocol):
    """As `Transaction`, without an event loop: on a connection of the store's own, in the calling thread."""

    @property
    def connection(self) -> Any:
        """The driver's own connection: of sqlite3, psycopg or mssql-python. Leave commit and rollback to the block."""
        ...

    def execute(self, statement: Statement, params: Params = None) -> SyncCursor:
        """Run the statement in the transaction. Raises LeaseLost instead once the term is over."""
        ...


def not_known() -> bool | None:
    """Always None: for databases where a renewal can ask, since the caller's open transaction does not block it."""
    return None


@dataclass(frozen=True)
class GuardText:
    """A condition for the WHERE of one statement: `sql` in the driver's parameter style, `text` with `:name` ones.

    `is_held` returns at once, in the calling thread, whether the lease in the store is this term's; None: not known.
    """

    sql: str
    text: str
    params: Mapping[str, Any]
    is_held: Callable[[], bool | None] = not_known


class Ready(Generic[T]):
    """An awaitable whose result is already known: so `await term.fence(conn)` works for every kind of connection."""

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()  # makes this a generator, which an awaitable needs
        return self._value


class FencePort(Protocol):
    """Each verb raises LeaseLost when the store refuses, and then nothing was written."""

    def transaction(self, key: TermKey, remaining_s: RemainingS) -> AbstractAsyncContextManager[Transaction]: ...

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]: ...

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        """Fence the transaction that is open on `target`.

        `over`: the term has ended already; only make the transaction unable to commit, and raise.
        """
        ...

    async def spoil(self, target: object) -> None:
        """If a transaction is open on `target`, make it unable to commit; never raises."""
        ...

    def guard(self, key: TermKey) -> GuardText: ...

    async def close(self) -> None: ...
