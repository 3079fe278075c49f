"""The fence on SQLite is the file's write lock: while a fenced transaction is open, nobody can take the lease over."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Any, TypeVar

from fencehold.backends.sql.fenced import (
    BEFORE_COMMIT,
    BEFORE_STATEMENT,
    REFUSED,
    FencedTerm,
    fence_gone,
    given_up,
    guard_params,
    lost,
)
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.callers import SqliteFence, is_held, params
from fencehold.backends.sqlite.file.identity import OpenFile, cut_off
from fencehold.backends.sqlite.session import Session, connect, single
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import FenceholdError
from fencehold.ports.facts import FactSink
from fencehold.ports.fence import GuardText, Params, RemainingS

STATEMENT_LIMIT_S_MIN = 0.05
LOOK_LIMIT_S = 0.2
GONE_HINT = "Leave commit and rollback to `term.transaction()`; executescript() commits first, so split the script."

T = TypeVar("T")


class SqliteResult:
    """The rows of a statement, with the methods of an async cursor. All rows are read at once."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.rows = cursor.fetchall()
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid

    async def fetchone(self) -> Any:
        return self.rows.pop(0) if self.rows else None

    async def fetchall(self) -> list[Any]:
        rows, self.rows = self.rows, []
        return rows


class SqliteTransaction:
    """A fenced transaction, whose statements run on a thread of its own.

    `connection` is sqlite3's; only one thread at a time may use it.
    """

    def __init__(self, session: Session, term: FencedTerm) -> None:
        self._session = session
        self._term = term
        self._is_given_up = False

    @property
    def connection(self) -> sqlite3.Connection:
        if self._session.opened is None:  # dropped, because another file has replaced its file
            raise fence_gone(GONE_HINT)
        return self._session.opened

    async def execute(self, statement: Any, params: Params = None) -> SqliteResult:
        self._term.check(BEFORE_STATEMENT)
        if self._is_given_up:
            raise given_up()
        must_be_open(self.connection)
        return await self._raw(lambda c: SqliteResult(c.execute(statement, params if params is not None else ())))

    async def begin(self, statements: Statements) -> None:
        def work() -> None:
            enter(self._session.connection(self._limit_s()), statements["fence"], self._term.key)

        await self._session.call(work, self._limit_s())

    async def commit(self) -> None:
        if self._is_given_up:
            raise given_up()

        def work(connection: sqlite3.Connection) -> None:
            if self._term.remaining_s() <= 0:
                self._session.roll_back()
                raise lost(self._term.key, BEFORE_COMMIT)
            must_be_open(connection)
            self._session.must_be_in_place()
            connection.execute("COMMIT")

        await self._session.call(lambda: work(self.connection), self._limit_s())

    async def _raw(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of the caller's own statement; an error of sqlite3 is raised unchanged.

        After a timeout or a cancellation, every later statement and the commit raise ConfigurationError
        (statement_given_up).
        """
        try:
            outcome = await self._session.call(lambda: _caught(work, self.connection), self._limit_s())
        except BaseException:
            self._is_given_up = True
            raise
        if isinstance(outcome, sqlite3.Error):
            raise outcome
        return outcome

    def _limit_s(self) -> float:
        return max(STATEMENT_LIMIT_S_MIN, self._term.remaining_s())


class BlockingTransaction:
    """A fenced transaction for programs without an event loop; its statements run in the calling thread."""

    def __init__(self, connection: sqlite3.Connection, term: FencedTerm) -> None:
        self.connection = connection
        self._term = term

    def execute(self, statement: Any, params: Params = None) -> sqlite3.Cursor:
        self._term.check(BEFORE_STATEMENT)
        must_be_open(self.connection)
        return self.connection.execute(statement, params if params is not None else ())


def enter(connection: sqlite3.Connection, fence: str, key: TermKey) -> None:
    """Begin a transaction, take the file's write lock and check the lease.

    If the lease is not the holder's any more, the transaction is rolled back, which frees the lock, and LeaseLost is
    raised.
    """
    values = params(key)
    connection.execute("BEGIN IMMEDIATE")
    if not is_held(connection.execute(fence, values).fetchall()):
        connection.execute("ROLLBACK")  # here, not later by the event loop: others wait for the lock
        raise lost(key, REFUSED)


def must_be_open(connection: sqlite3.Connection) -> None:
    if not connection.in_transaction:
        raise fence_gone(GONE_HINT)


def _caught(work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T | sqlite3.Error:
    try:
        return work(connection)
    except sqlite3.Error as error:
        return error


class SqliteFences:
    def __init__(self, path: str, statements: Statements, facts: FactSink | None = None) -> None:
        self._path = path
        self._statements = statements
        self._facts = facts
        self._callers = SqliteFence(path, statements)
        self._session: Session | None = None
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[SqliteTransaction]:
        term = FencedTerm(key, remaining_s)
        term.check()
        if self._session is None:
            self._session = Session(self._path, "fencehold-sqlite-tx", self._statements, self._facts)
        session = self._session
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            tx = SqliteTransaction(session, term)
            try:
                await tx.begin(self._statements)
                yield tx
                await tx.commit()
            finally:
                # Queued on the thread: it runs after a cancelled call that is still running there.
                await asyncio.shield(session.call(session.roll_back, 1.0))

    @contextmanager
    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> Iterator[BlockingTransaction]:
        """Run a fenced transaction on a new connection in the calling thread; commit at the end of the block.

        Raises LeaseLost if the term is over or the store refuses the fence.
        """
        term = FencedTerm(key, remaining_s)
        term.check()
        file = OpenFile(self._path)
        with self._sorted():
            connection = connect(self._path, "rw", max(STATEMENT_LIMIT_S_MIN, remaining_s()))
        with closing(connection):
            with self._sorted():
                connection.execute(f"PRAGMA busy_timeout = {max(1, int(remaining_s() * 1000))}")
                enter(connection, self._statements["fence"], key)
            yield BlockingTransaction(connection, term)
            term.check(BEFORE_COMMIT)
            must_be_open(connection)
            if found := file.replaced():
                raise cut_off(found)
            connection.execute("COMMIT")

    @contextmanager
    def _sorted(self) -> Iterator[None]:
        """Raise our error for an error of sqlite3 that a statement of ours raises in the block."""
        try:
            yield
        except sqlite3.Error as error:
            raise faults.of_statement(error, self._path) from error

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        return self._callers.fence(target, key, over)

    async def spoil(self, target: object) -> None:
        with suppress(Exception):
            await self._callers.spoil(target)

    def guard(self, key: TermKey) -> GuardText:
        named = guard_params(params(key))
        sql = self._statements["guard"]
        return GuardText(sql, self._statements.named("guard"), named, lambda: self._is_held(sql, named))

    def _is_held(self, guard: str, named: dict[str, Any]) -> bool | None:
        """Whether the store says that the lease is still the one of this term; None if the file cannot be read now.

        This only reads, which waits for nobody. A renewal would wait for the transaction that the caller itself has
        open.
        """
        try:
            with closing(connect(self._path, "rw", LOOK_LIMIT_S)) as connection:
                return bool(single(connection, f"SELECT {guard}", named))
        except (sqlite3.Error, FenceholdError):
            return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
