"""The fence on SQLite is the write lock itself: while a fenced transaction is open, nobody can take over."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Any, TypeVar

from fencehold.backends.sql import begin_hints, wrong_store
from fencehold.backends.sql import caller_session as sql_session
from fencehold.backends.sql.given_up import given_up
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.file.identity import OpenFile, cut_off
from fencehold.backends.sqlite.file.of_caller import elsewhere, main_file, main_of
from fencehold.backends.sqlite.session import Session, connect
from fencehold.model.election.leases import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError, LeaseLost
from fencehold.ports.facts import FactSink
from fencehold.ports.fence import DONE, GuardText, Params, RemainingS

DIALECT = "sqlite"  # as SQLAlchemy spells it
STATEMENT_LIMIT_S_MIN = 0.05
LOOK_LIMIT_S = 0.2

T = TypeVar("T")


def lost(key: TermKey, why: str) -> LeaseLost:
    return LeaseLost(f"Lease {key.name!r} epoch {key.epoch}: {why}.", name=key.name, epoch=key.epoch)


def fence_gone() -> ConfigurationError:
    return ConfigurationError(
        "The fenced transaction was ended inside its block; what follows would not be fenced.",
        hint="Leave commit and rollback to `term.transaction()`; executescript() commits first, so split the script.",
        code="fence_gone",
    )


class SqliteResult:
    """The result of a statement, in the shape of an async cursor."""

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
    """A fenced transaction on a thread of its own; `connection` is sqlite3's, for one thread at a time."""

    def __init__(self, session: Session, key: TermKey, remaining_s: RemainingS) -> None:
        self._session = session
        self._key = key
        self._remaining_s = remaining_s
        self._is_given_up = False

    @property
    def connection(self) -> sqlite3.Connection:
        if self._session.opened is None:  # dropped, because another file has replaced its file
            raise fence_gone()
        return self._session.opened

    async def execute(self, statement: Any, params: Params = None) -> SqliteResult:
        if self._remaining_s() <= 0:
            raise lost(self._key, "the term ended before this statement was sent")
        if self._is_given_up:
            raise given_up()
        if not self.connection.in_transaction:
            raise fence_gone()
        return await self._raw(lambda c: SqliteResult(c.execute(statement, params if params is not None else ())))

    async def begin(self, statements: Statements) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            if not is_held(connection.execute(statements["fence"], params(self._key)).fetchall()):
                self._session.roll_back()  # here, not later by the event loop: others wait for the lock
                raise lost(self._key, "the store refused the fence: it has expired or another holds it")

        await self._session.call(lambda: work(self._session.connection(self._limit_s())), self._limit_s())

    async def commit(self) -> None:
        if self._is_given_up:
            raise given_up()

        def work(connection: sqlite3.Connection) -> None:
            if self._remaining_s() <= 0:
                self._session.roll_back()
                raise lost(self._key, "the term ended before the commit")
            if not connection.in_transaction:
                raise fence_gone()
            self._session.must_be_in_place()
            connection.execute("COMMIT")

        await self._session.call(lambda: work(self.connection), self._limit_s())

    async def _raw(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the caller's own statement: its errors stay sqlite3's.

        After a timeout or a cancellation, every later statement and the commit raise `given_up`.
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
        return max(STATEMENT_LIMIT_S_MIN, self._remaining_s())


class BlockingTransaction:
    """The same for programs without an event loop."""

    def __init__(self, connection: sqlite3.Connection, key: TermKey, remaining_s: RemainingS) -> None:
        self.connection = connection
        self._key = key
        self._remaining_s = remaining_s

    def execute(self, statement: Any, params: Params = None) -> sqlite3.Cursor:
        self.check("the term ended before this statement was sent")
        if not self.connection.in_transaction:
            raise fence_gone()
        return self.connection.execute(statement, params if params is not None else ())

    def check(self, why: str) -> None:
        if self._remaining_s() <= 0:
            raise lost(self._key, why)


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
        self._session: Session | None = None
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[SqliteTransaction]:
        if remaining_s() <= 0:
            raise lost(key, "the term is over")
        if self._session is None:
            self._session = Session(self._path, "fencehold-sqlite-tx", self._statements, self._facts)
        session = self._session
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            tx = SqliteTransaction(session, key, remaining_s)
            try:
                await tx.begin(self._statements)
                yield tx
                await tx.commit()
            finally:
                # Queued on the thread: it runs after a cancelled call that is still running there.
                await asyncio.shield(session.call(session.roll_back, 1.0))

    @contextmanager
    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> Iterator[BlockingTransaction]:
        """Use a connection that is opened and closed here, in the calling thread."""
        if remaining_s() <= 0:
            raise lost(key, "the term is over")
        file = OpenFile(self._path)
        try:
            connection = connect(self._path, "rw", max(STATEMENT_LIMIT_S_MIN, remaining_s()))
        except sqlite3.Error as error:
            raise faults.of_statement(error, self._path) from error
        try:
            self._begin_sync(connection, remaining_s)
            self._fence_own(connection, key)
            tx = BlockingTransaction(connection, key, remaining_s)
            yield tx
            tx.check("the term ended before the commit")
            if not connection.in_transaction:
                raise fence_gone()
            if found := file.replaced():
                raise cut_off(found)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        return begin_hints.advised(target, lambda: self._fence(target, key, over))

    def _fence(self, target: object, key: TermKey, over: bool) -> Awaitable[None]:
        target = sql_session.unwrapped(target, DIALECT)
        if isinstance(target, sqlite3.Connection):
            self._fence_sync(target, key, over)
            return DONE
        if sql_session.is_sqlalchemy(target, DIALECT):
            if sql_session.is_async(target):
                return self._fence_session_async(target, key, over)
            self._fence_session(target, key, over)
            return DONE
        raise ConfigurationError(
            f"term.fence() cannot use a {sql_session.kind_of(target)}.",
            hint="Give a connection of sqlite3, aiosqlite or Django, or a SQLAlchemy session or connection.",
            code="bad_connection",
        )

    async def spoil(self, target: Any) -> None:
        with suppress(Exception):
            target = sql_session.unwrapped(target, DIALECT)
            in_transaction = target.in_transaction
            if isinstance(target, sqlite3.Connection):
                self._roll_back(target)
            elif in_transaction() if callable(in_transaction) else in_transaction:
                done = target.rollback()
                if inspect.isawaitable(done):
                    await done

    def guard(self, key: TermKey) -> GuardText:
        named = {f"fencehold_{name}": value for name, value in params(key).items()}
        sql = self._statements["guard"]
        return GuardText(sql, self._statements.named("guard"), named, lambda: self._is_held(sql, named))

    def _is_held(self, guard: str, named: dict[str, Any]) -> bool | None:
        """Whether the store has the lease as this term's; None if it cannot be read now.

        It is a read, which waits for nobody: a renewal would wait for the caller's own open transaction.
        """
        try:
            with closing(connect(self._path, "rw", LOOK_LIMIT_S)) as connection:
                return bool(connection.execute(f"SELECT {guard}", named).fetchone()[0])
        except (sqlite3.Error, FenceholdError):
            return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _begin_sync(self, connection: sqlite3.Connection, remaining_s: RemainingS) -> None:
        try:
            connection.execute(f"PRAGMA busy_timeout = {max(1, int(remaining_s() * 1000))}")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise faults.of_statement(error, self._path) from error

    def _fence_own(self, connection: sqlite3.Connection, key: TermKey) -> None:
        try:
            rows = connection.execute(self._statements["fence"], params(key)).fetchall()
        except sqlite3.Error as error:
            raise faults.of_statement(error, self._path) from error
        if not is_held(rows):
            raise lost(key, "the store refused the fence: it has expired or another holds it")

    def _fence_sync(self, target: sqlite3.Connection, key: TermKey, over: bool) -> None:
        rows: list[Any] = []
        if not over:
            cursor = target.cursor()
            cursor.row_factory = None  # the caller's own may return any type
            try:
                rows = cursor.execute(self._statements["fence"], params(key)).fetchall()
            except sqlite3.Error as error:
                if not _is_elsewhere(error):
                    raise faults.of_statement(error, self._path) from error
        if not is_held(rows):
            where = self._elsewhere(target)
            self._roll_back(target)
            raise refusal(key, rows, over, where)
        if not target.in_transaction:
            raise outside_transaction()

    def _roll_back(self, target: sqlite3.Connection) -> None:
        """Roll back, also where the driver's rollback() does nothing: with `autocommit=True`, since Python 3.12."""
        target.rollback()
        if getattr(target, "autocommit", None) is True and target.in_transaction:
            target.execute(self._statements["poison"])

    def _elsewhere(self, target: object) -> str:
        if not isinstance(target, sqlite3.Connection):
            return ""
        return elsewhere(main_file(target, self._statements["file"]), self._path)

    def _fence_session(self, target: Any, key: TermKey, over: bool) -> None:
        rows: list[Any] = []
        try:
            rows = [] if over else sql_session.run(target, self._statements.named("fence"), params(key))
        except Exception as error:
            if not _is_elsewhere(error):
                raise
        if not is_held(rows):
            where = self._elsewhere(sql_session.driver_connection(target))
            sql_session.roll_back_all(target)
            raise refusal(key, rows, over, where)
        if not sql_session.driver_connection(target).in_transaction:
            raise outside_transaction()

    async def _fence_session_async(self, target: Any, key: TermKey, over: bool) -> None:
        rows: list[Any] = []
        try:
            rows = [] if over else await sql_session.run_async(target, self._statements.named("fence"), params(key))
        except Exception as error:
            if not _is_elsewhere(error):
                raise
        if not is_held(rows):
            found = await sql_session.run_async(target, self._statements.named("file"), {})
            await sql_session.roll_back_all_async(target)
            raise refusal(key, rows, over, elsewhere(main_of(found), self._path))
        if not (await sql_session.driver_connection_async(target)).in_transaction:
            raise outside_transaction()


def params(key: TermKey) -> dict[str, Any]:
    return {"name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id}


def is_held(rows: list[Any]) -> bool:
    """Whether the lease exists, is ours and is live, from the rows that the fence returned."""
    return bool(rows and rows[0][0])


def refusal(key: TermKey, rows: list[Any], over: bool, where: str = "") -> FenceholdError:
    if over:
        return lost(key, "the term is over; this transaction was rolled back")
    if rows and rows[0][1]:
        return lost(key, "the store refused the fence; this transaction was rolled back")
    return wrong_store.of_fence(key, where, wrong_store.ROLLED_BACK)


def _is_elsewhere(error: Exception) -> bool:
    """Whether the error means that our table, or its newest column, is not in this file. In the store's file it is."""
    cause = getattr(error, "orig", error)
    return isinstance(cause, sqlite3.Error) and wrong_store.is_elsewhere(faults.of_statement(cause, ""))


def outside_transaction() -> ConfigurationError:
    return ConfigurationError(
        "term.fence() needs an open transaction: in autocommit its lock would be gone before your write.",
        hint='Run "BEGIN IMMEDIATE" first, then fence, then write.',
        code="fence_outside_transaction",
    )
