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
    """The result of a statement, for async code. It has what the cursors of all databases have in common.

    The driver decides what a row is. psycopg's and SQL Server's cursors have more methods (`fetchmany`, `description`,
    `async for`); the store in memory returns None instead of a cursor.
    """

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed; -1 if the driver does not know."""
        ...

    async def fetchone(self) -> Any:
        """Return the next row; None when no row is left."""
        ...

    async def fetchall(self) -> list[Any]:
        """Return all rows that were not fetched yet."""
        ...


class SyncCursor(Protocol):
    """The result of a statement, for programs without an event loop. The driver decides what a row is."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed; -1 if the driver does not know."""
        ...

    @property
    def description(self) -> Any:
        """The columns of the rows, as the DB-API describes them; None if the statement returns no rows."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None when no row is left."""
        ...

    def fetchmany(self, size: int = ..., /) -> list[Any]:
        """Return the next `size` rows, or fewer if fewer are left."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that were not fetched yet."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """An open fenced transaction, for async code.

    It commits when its block ends without an error, and only while the term's epoch is the lease's.
    """

    @property
    def connection(self) -> Any:
        """Return the driver's own connection: of sqlite3, psycopg or mssql-python.

        Do not commit or roll back on it: the end of the transaction's block does that.
        """
        ...

    async def execute(self, statement: Statement, params: Params = None) -> Cursor:
        """Run the statement in the transaction. Raises LeaseLost, without running it, once the term is over."""
        ...


class SyncTransaction(Protocol):
    """An open fenced transaction for programs without an event loop, on a connection of the store's own.

    It runs in the calling thread. It commits when its block ends without an error, and only while the term's epoch is
    the lease's.
    """

    @property
    def connection(self) -> Any:
        """Return the driver's own connection: of sqlite3, psycopg or mssql-python.

        Do not commit or roll back on it: the end of the transaction's block does that.
        """
        ...

    def execute(self, statement: Statement, params: Params = None) -> SyncCursor:
        """Run the statement in the transaction. Raises LeaseLost, without running it, once the term is over."""
        ...


def not_known() -> bool | None:
    """Return None: whether the lease is held is not known.

    It is for databases on which a caller's open transaction does not block a renewal: there the renewal finds out.
    """
    return None


@dataclass(frozen=True)
class GuardText:
    """A condition for the WHERE of one statement, true only while the lease is this term's.

    `sql` has parameters in the driver's style, `text` has them as `:name`. `is_held` returns at once, in the calling
    thread, whether the lease in the store is this term's; None: not known.
    """

    sql: str
    text: str
    params: Mapping[str, Any]
    is_held: Callable[[], bool | None] = not_known


class Ready(Generic[T]):
    """An awaitable whose result is already known.

    It lets a program write `await term.fence(conn)` for a blocking connection too.
    """

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()  # makes this a generator, which an awaitable needs
        return self._value


class FencePort(Protocol):
    """The fence: the verbs that make a write depend on the lease.

    Each verb except `spoil` and `close` raises LeaseLost when the store refuses it, and then nothing was written.
    """

    def transaction(self, key: TermKey, remaining_s: RemainingS) -> AbstractAsyncContextManager[Transaction]: ...

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]: ...

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        """Check the lease inside the transaction that is open on `target`; a takeover then waits for its end.

        Raises LeaseLost if the lease is not this term's. `over` True: the term has ended already, so only make the
        transaction unable to commit, and raise.
        """
        ...

    async def spoil(self, target: object) -> None:
        """If a transaction is open on `target`, make it unable to commit; never raises."""
        ...

    def guard(self, key: TermKey) -> GuardText: ...

    async def close(self) -> None: ...
