"""What a backend's author supplies so that the conformance suite can run on it.

A harness opens in the event loop of one test and is closed at its end. It gives a clean namespace (a place of its own
in the store) with its tables, any number of clients, a store clock that can be set and, where the store has them, SQL,
a network to break and processes. Its `traits` declare what the store can do: tests that need anything else are not
collected.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fencehold.ports.backend import Backend, events_of, items_of
from fencehold.ports.events import Events
from fencehold.ports.fence import Transaction
from fencehold.ports.items import ItemStore
from fencehold.testing.proxy import FaultProxy

P = TypeVar("P", Events, ItemStore)

LEASE_TABLE = "fencehold_leases"
OUTBOX_TABLE = "fencehold_outbox"
ITEM_TABLE = "fencehold_items"
ITEM_KIND = "thing"
CALL_LIMIT_S = 20.0

# What the suite writes under a fence; a namespace with SQL has both tables.
ADD_NOTE = "INSERT INTO notes (note) VALUES ({note})"
READ_NOTES = "SELECT note FROM notes ORDER BY place"
COUNT = "UPDATE counters SET n = n + 1 WHERE id = 1"
READ_COUNT = "SELECT n FROM counters WHERE id = 1"


class Can(enum.Enum):
    """The abilities that a store or its harness may have. Messages quote the value: "needs fenced transactions"."""

    LEASES = "leases"
    FENCES = "fenced transactions"
    OUTBOX = "an outbox"
    ITEMS = "items"
    SQL = "SQL"  # Harness.sql and second()
    ROW_LOCKS = "transactions that block their own lease or row only"
    PLACES = "epochs that jump after a promotion"  # model/election/places.py
    WAKEUPS = "hints of changed leases"
    EVENT_HINTS = "hints of added events"
    ITEM_KINDS = "a list of the kinds of items"
    PROCESSES = "clients in other processes"  # Harness.remote
    OBSTRUCTION = "a way to block it"  # Harness.obstructed()
    NETWORK = "a network to break"  # Harness.network()


@dataclass(frozen=True)
class Traits:
    """Facts about a store that the suite cannot find out by itself."""

    store: str  # what the matrix of rules calls it: "SQLite"
    tick: dt.timedelta  # the smallest difference between two instants that the store keeps
    can: Collection[Can]
    item_tick: dt.timedelta | None = None  # for items, if it is another one
    walk_steps: int = 3000  # as many as take a few seconds
    commit_bytes: bytes = b"COMMIT"  # how the commit of a fenced transaction shows on the network


class Caller(Protocol):
    """A user's own connection, of one particular kind, to the database: the suite calls it as user code would."""

    @property
    def target(self) -> object:
        """The object that is passed to `fence()`."""

    async def begin(self) -> None: ...

    async def execute(self, statement: str, params: Mapping[str, Any] | None = None) -> int:
        """Run the statement and return the number of changed rows."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class Door(Protocol):
    """One kind of connection (a driver or an ORM) that `fence()` and `guard()` promise to work with."""

    @property
    def title(self) -> str: ...

    @property
    def takes_text(self) -> bool:
        """Whether statements have `:name` parameters (GuardText.text).

        If not, they have the driver's style (GuardText.sql).
        """

    def open(self, *, autocommit: bool = False) -> AbstractAsyncContextManager[Caller]: ...


class Sql(Protocol):
    """SQL access to the harness's namespace through connections that are the user's own, not the library's."""

    async def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of the test's own, and commit at once.

        Return the rows; empty if there are none.
        """

    async def run_script(self, script: str) -> None:
        """Run several statements that are given in one text, as the database's own shell runs a script."""

    @property
    def error(self) -> type[Exception]:
        """The class of the error that `run` raises when the database refuses a statement."""

    def doors(self) -> Sequence[Door]: ...

    async def until_one_waits(self) -> None:
        """Return once some session of this namespace waits for a row lock; called only for a store that locks rows."""


@dataclass(frozen=True)
class Remote:
    """How another process makes a client: it calls `maker` (`module:callable`) with `argument`.

    The call returns a function that makes a backend.
    """

    argument: str
    maker: str = "fencehold.connect:backend_for"


class Harness(ABC):
    """The base class of harnesses: opens a namespace in a store for one test, and gives clients of it.

    Subclasses define the abstract methods. Every client that a harness gives out is closed with the harness.
    """

    traits: Traits

    def __init__(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self.applied: set[str] = set()  # the rules that an oracle applied in this test; the matrix of rules shows them

    def can(self, ability: Can) -> bool:
        return ability in self.traits.can

    async def open(self) -> None:
        """Make the namespace and its table of leases; nothing of an earlier test is in the namespace."""
        await self.prepare()
        backend = await self.client()
        await backend.schema.init(CALL_LIMIT_S)

    async def close(self) -> None:
        await self.stack.aclose()

    async def client(self, table: str = LEASE_TABLE) -> Backend:
        """Return one more client of the same namespace, already open."""
        return await self.opened(self.make(table))

    async def events(self, table: str = OUTBOX_TABLE, init: bool = True) -> Events:
        """Return one more outbox of the same namespace; closed with the harness.

        `init` makes its tables, if they are missing. Without `init` the outbox is not yet connected.
        """
        return await self._made(events_of(self.make(), table), init)

    async def items(self, kind: str = ITEM_KIND, init: bool = True) -> ItemStore:
        """Return one more client of the items of this kind in the same namespace; closed with the harness.

        `init` makes the table, if it is missing. Without `init` the client is not yet connected.
        """
        return await self._made(items_of(self.make(), kind), init)

    async def _made(self, part: P, init: bool) -> P:
        self.stack.push_async_callback(part.close)
        if init:
            await part.schema.init(CALL_LIMIT_S)
        return part

    async def opened(self, backend: Backend) -> Backend:
        """Open `backend` and return it; it is closed with the harness."""
        self.stack.push_async_callback(backend.close)
        self.stack.push_async_callback(backend.fences.close)
        await backend.open(CALL_LIMIT_S)
        return backend

    @abstractmethod
    async def prepare(self) -> None:
        """Make an empty namespace, and push its removal onto `self.stack`.

        If the store has SQL, the namespace has two tables: `notes (place, note)`, where the database counts the place
        up, and `counters (id, n)` with one row (1, 0).
        """

    @abstractmethod
    def make(self, table: str = LEASE_TABLE) -> Backend:
        """Return a client that is not yet open."""

    @abstractmethod
    async def set_clock(self, at: dt.datetime) -> None:
        """Stop the store's clock at this instant, for every client."""

    @abstractmethod
    async def shift_clock(self, ahead: dt.timedelta) -> None:
        """Let the store's clock run `ahead` of the process's clock; a negative difference puts it behind."""

    async def write(self, tx: Transaction, note: int) -> None:
        """Write a note in a fenced transaction."""
        await tx.execute(ADD_NOTE.format(note=int(note)))

    async def written(self) -> list[int]:
        """Return all notes that were committed, in the order in which they were written."""
        return [row[0] for row in await self.sql.run(READ_NOTES)]

    async def another(self) -> Harness:
        """Return a harness of a second namespace of the same kind, as another database; closed with this harness."""
        other = self.second()
        self.stack.push_async_callback(other.close)
        await other.open()
        return other

    # What not every store has

    def second(self) -> Harness:
        """Return a harness of the same kind on a namespace of its own, not yet open; only for a store with SQL."""
        raise NotImplementedError(f"{type(self).__name__} has no second namespace")

    @property
    def sql(self) -> Sql:
        raise NotImplementedError(f"{type(self).__name__} gives no SQL connections")

    @property
    def remote(self) -> Remote:
        raise NotImplementedError(f"{type(self).__name__} cannot be reached from another process")

    def obstructed(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager: inside its block the store executes nothing, and calls raise Unavailable."""
        raise NotImplementedError(f"{type(self).__name__} cannot be obstructed")

    async def network(self) -> tuple[FaultProxy, Backend]:
        """Return a proxy, and an open client whose traffic goes through it."""
        raise NotImplementedError(f"{type(self).__name__} has no network")
