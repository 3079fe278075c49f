"""A service's own tables, in the same database as its leases: what every database with SQL offers for them.

A row is a dict with the names of the statement's columns. A column whose name ends in `_at`, or is `now`, holds a time:
on every database it is read as a datetime in UTC. A parameter may be a datetime too.
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
    """One of the service's statements: the file `sql/<dialect>/<name>.sql`, with a value for each `:parameter` in it.

    `may_repeat`: running it twice is the same as running it once, so it may be repeated on another connection if the
    first connection turns out to be dead. `is_promise`: the service relies on the answer. If the store was given
    `durable=`, the answer to such a statement comes only once a standby has the data, even if an earlier call wrote the
    data.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    may_repeat: bool = True
    is_promise: bool = False


#: A transaction written once, without I/O: it yields a statement and gets its rows back; what it returns is the result.
Steps = Generator[Statement, list[Row], T]


class HeldTerm(Protocol):
    """The part of a leader's term that a fenced transaction needs. `fencehold.Term` has all of it."""

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
    """What runs the service's statements. Every call ends within its limit.

    Raises Unavailable if a statement was not executed, Uncertain if it perhaps was, ConfigurationError if waiting does
    not help. SQLite may take a second longer.
    """

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        """Run one statement, which commits by itself, and return its rows.

        Raises Unavailable also for a bad value (`store_error`), and on SQL Server for a key that is taken (`conflict`).
        """
        ...

    async def run_all(self, statements: Sequence[Statement], limit_s: float) -> list[list[Row]]:
        """Run the statements one after another and return the rows of each.

        On SQLite they run in one transaction, because each commit takes long; elsewhere each one commits by itself.
        """
        ...


class Reader(Runs, Protocol):
    """One connection only for statements that read. The database's plans on it do not depend on table statistics."""

    def on_hint(self, hint: Callable[[], None]) -> None:
        """Register `hint`, to be called on this event loop when the channel of your statement `changes` is notified.

        A call may fail to come, so poll too. On SQLite and SQL Server it never comes.
        """
        ...

    async def listen(self, limit_s: float) -> bool:
        """Start to listen and return True once notifications arrive. False: this database or its pooler sends none."""
        ...

    async def close(self) -> None: ...


class Tables(Protocol):
    """Makes the service's tables, and reports what they lack."""

    async def init(self, limit_s: float = INIT_LIMIT_S) -> list[str]:
        """Create or upgrade the tables and return the steps just applied. Safe to repeat, safe in parallel."""
        ...

    def script(self) -> str:
        """Return the SQL that `init` runs, as text for the database's own shell. Opens no connection."""
        ...

    async def missing(self, limit_s: float) -> list[str]:
        """Return what the service's statement `missing` lists.

        If it lists nothing but a migration step of this version was not applied, returns the name of the table. An
        empty list: nothing is missing.
        """
        ...

    async def rights_missing(self, limit_s: float) -> list[str]:
        """Return what the service's statement `rights_missing` lists: rights that this role lacks. Empty if none.

        On SQLite, returns the permissions that are missing on the file and its folder.
        """
        ...


class OwnTables(Runs, Tables, Protocol):
    """A service's own tables in the database of a store, for one event loop. Every call ends within its limit.

    Raises Unavailable if a statement was not executed, Uncertain if it perhaps was, ConfigurationError if waiting does
    not help. SQLite may take a second longer.
    """

    @property
    def dialect(self) -> str:
        """Return `sqlite`, `postgres` or `sqlserver`: the folder that the statements are read from."""
        ...

    async def open(self, limit_s: float = OPEN_LIMIT_S) -> None:
        """Check that the database answers; raise if not.

        On SQLite does nothing: the file may not exist before `init`.
        """
        ...

    async def fenced(self, term: HeldTerm, steps: Steps[T]) -> T:
        """Run the steps so that they commit only while this term's epoch holds, and return their result.

        On PostgreSQL and SQLite the steps run in one transaction; on SQLite they run in one call on a thread of its
        own. On SQL Server each statement is a batch that contains a transaction and the fence, so that a frozen process
        keeps no lock. Such a statement also gets :name, :holder, :epoch and :wait_ms, and answers a column `verdict`
        with `lost` or `busy` if the fence refused it. Raises LeaseLost if the fence refused: nothing was written.
        Raises the driver's own DataError or IntegrityError for a bad value, which says nothing about the database or
        the lease.
        """
        ...

    def reader(self) -> Reader:
        """Return a connection of its own for reading. `close` of these tables closes it too."""
        ...

    async def close(self) -> None: ...
