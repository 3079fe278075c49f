"""Tables of a service's own, beside its leases: what every database with SQL offers for them.

A row is a dict, with the names of the statement's columns. A column whose name ends in `_at`, or is `now`, holds a
time: on every database it is read as a datetime in UTC, and a datetime may be given for a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fencehold.model.errors import LeaseLost
from fencehold.ports.fence import Transaction

T = TypeVar("T")

Row = dict[str, Any]

INIT_LIMIT_S = 60.0
OPEN_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Statement:
    """One of your statements: the file `sql/<dialect>/<name>.sql`, with a value for each `:parameter` in it.

    `may_repeat`: running it twice is the same as running it once, so it is repeated on another connection if the one
    kept from before has died. `is_promise`: you rely on what it answers. If the store was given `durable=`, it then
    answers only once a standby has the data, even if an earlier call wrote that.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    may_repeat: bool = True
    is_promise: bool = False


#: A transaction written once, without I/O: it yields a statement and gets its rows back; what it returns is the result.
Steps = Generator[Statement, list[Row], T]


class HeldTerm(Protocol):
    """What a fenced transaction needs of a term; `fencehold.Term` has it."""

    @property
    def name(self) -> str: ...

    @property
    def holder_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def remaining_s(self) -> float: ...

    def check(self) -> None: ...

    def lost(self, why: str) -> LeaseLost: ...

    def guard(self) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...


class Runs(Protocol):
    """Runs statements of yours. Every call ends within its limit.

    Raises Unavailable if a statement was not executed, Uncertain if it perhaps was, ConfigurationError if waiting does
    not help. SQLite may take a second longer.
    """

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        """Run one statement, committed by itself, and return its rows.

        Raises Unavailable also for a bad value (`store_error`), and on SQL Server for a key that is taken (`conflict`).
        """
        ...

    async def run_all(self, statements: Sequence[Statement], limit_s: float) -> list[list[Row]]:
        """Run the statements one after another and return the rows of each.

        On SQLite in one transaction, because each commit costs there; elsewhere each is committed by itself.
        """
        ...


class Reader(Runs, Protocol):
    """One connection for statements that only read, apart from all others. Its plans do not depend on statistics."""

    def on_hint(self, hint: Callable[[], None]) -> None:
        """Call `hint`, on the caller's event loop, at a notification on the channel of your statement `changes`.

        Only a hint: it may fail to come, and on SQLite and SQL Server it never comes.
        """
        ...

    async def listen(self, limit_s: float) -> bool:
        """Return True once notifications arrive. False: this database, or a pooler before it, sends none."""
        ...

    async def close(self) -> None: ...


class Tables(Protocol):
    """Makes your tables, and reports what they lack."""

    async def init(self, limit_s: float = INIT_LIMIT_S) -> list[str]:
        """Create or upgrade the tables and return the steps just applied. Safe to repeat, safe in parallel."""
        ...

    def script(self) -> str:
        """The SQL that `init` runs, as text for a database's own shell. Opens no connection."""
        ...

    async def missing(self, limit_s: float) -> list[str]:
        """Return what your statement `missing` lists.

        If that is nothing, return the table if it lacks a step of this version.
        """
        ...

    async def rights_missing(self, limit_s: float) -> list[str]:
        """What your statement `rights_missing` lists; on SQLite the permissions missing on the file and its folder."""
        ...


class OwnTables(Runs, Tables, Protocol):
    """Your own tables on the database of a store, for one event loop. Every call ends within its limit.

    Raises Unavailable if a statement was not executed, Uncertain if it perhaps was, ConfigurationError if waiting does
    not help. SQLite may take a second longer.
    """

    @property
    def dialect(self) -> str:
        """`sqlite`, `postgres` or `sqlserver`: the folder that the statements are read from."""
        ...

    async def open(self, limit_s: float = OPEN_LIMIT_S) -> None:
        """Raise unless the database answers. On SQLite does nothing: the file may not exist before `init`."""
        ...

    async def fenced(self, term: HeldTerm, steps: Steps[T]) -> T:
        """Run the steps so that they commit only while this term's epoch holds, and return their result.

        PostgreSQL and SQLite run them in one transaction, SQLite in one call on a thread of its own. On SQL Server each
        statement is a batch with a transaction and the fence in it, so that a frozen process keeps no lock: it also
        gets :name, :holder, :epoch and :wait_ms, and answers a column `verdict`, `lost` or `busy` if it was refused.
        Raises LeaseLost if the fence refused: nothing was written. Raises the driver's own DataError or IntegrityError
        for a bad value, which says nothing about the database or the lease.
        """
        ...

    def reader(self) -> Reader:
        """A connection of its own for reading; `close` of these tables closes it too."""
        ...

    async def close(self) -> None: ...
