"""Our statements in a transaction that a caller owns, on PostgreSQL.

When a fence or a write is refused, the transaction stays open but is made to fail: it can only be rolled back.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from fencehold.backends.postgres import faults
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.postgres.encodings import must_keep_text, readable, text_must_fit
from fencehold.backends.postgres.outbox import rows as event_rows
from fencehold.backends.sql import wrong_store
from fencehold.backends.sql.callers.connections import (
    NO_PARAMS,
    CallersAsyncConnection,
    CallersConnection,
    CallersSyncConnection,
    End,
    Params,
    Rows,
    Run,
    Steps,
)
from fencehold.backends.sql.callers.dialect import Dialect, Refusals
from fencehold.backends.sql.callers.fence import CallersFence
from fencehold.backends.sql.callers.kinds import is_class
from fencehold.backends.sql.callers.outbox import CallersOutbox, RunsOwn
from fencehold.backends.sql.fenced import lost
from fencehold.backends.sql.statements import Statements, granting, numbered
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.model.outbox.new_events import NewEvent

ASYNCPG = ("asyncpg.Connection", "asyncpg.PoolConnectionProxy")  # a pool lends the second in place of a connection
SNAPSHOT_SEES_ALL = "read committed"
LIMIT_MS_MAX = 2**31 - 1
MUST_FAIL = ("bad_encoding", "not_in_encoding", "pipeline_on", "no_standby")  # then the transaction must fail too
NOT_THERE = ("42P01", "42703", "3F000")  # undefined table, undefined column, invalid schema name
POISONED = ("P0001", "25P01")  # raised by `poison`; no transaction is open

_numbered = functools.lru_cache(maxsize=512)(numbered)  # each statement once


class _OfPsycopg(CallersConnection):
    """What a caller's sync and async connection of psycopg have in common.

    Our statements use a cursor of our own, because the caller's row and cursor factories may return anything.
    """

    @property
    def is_closed(self) -> bool:
        return bool(self.target.closed)

    @property
    def is_idle(self) -> bool:
        return bool(self.target.autocommit) and not self.in_transaction

    @property
    def in_transaction(self) -> bool:
        return bool(self.target.info.transaction_status != TransactionStatus.IDLE)

    @property
    def in_savepoint(self) -> bool:
        """Whether the caller is inside a nested `with conn.transaction():`, which psycopg keeps as a savepoint.

        If we ended that savepoint, psycopg would raise an error of its own at the end of the caller's block.
        """
        return int(getattr(self.target, "_num_transactions", 0)) > 0


class Psycopg(_OfPsycopg, CallersSyncConnection):
    def run(self, name: str, params: Params) -> Rows:
        cursor = psycopg.Cursor(self.target, row_factory=tuple_row)
        cursor.execute(self.statements[name].encode(), params or None)
        return cursor.fetchall() if cursor.description else []


class AsyncPsycopg(_OfPsycopg, CallersAsyncConnection):
    async def run(self, name: str, params: Params) -> Rows:
        cursor = psycopg.AsyncCursor(self.target, row_factory=tuple_row)
        await cursor.execute(self.statements[name].encode(), params or None)
        return await cursor.fetchall() if cursor.description else []


class Asyncpg(CallersAsyncConnection):
    keeps_errors = True

    @property
    def is_autocommit(self) -> bool:
        return not self.in_transaction

    @property
    def in_transaction(self) -> bool:
        return bool(self.target.is_in_transaction())

    @property
    def in_savepoint(self) -> bool:
        """Always True, to be safe: asyncpg does not report whether a savepoint is open.

        From an open savepoint a caller could go on and commit after an error.
        """
        return True

    async def run(self, name: str, params: Params) -> Rows:
        text, names = _numbered(self.statements.named(name))
        return [tuple(row) for row in await self.target.fetch(text, *(params[name] for name in names))]

    async def close(self) -> None:
        self.target.terminate()


class PostgresDialect(Dialect):
    name = "postgresql"
    takes = (
        "Give a connection to PostgreSQL: of psycopg 3 (not psycopg2), of asyncpg, of Django with psycopg 3, or a "
        "SQLAlchemy session or connection with any driver"
    )
    takes_as_tx = "; or leave tx out."
    begin = "Open a transaction first (`async with conn.transaction():`)"
    refused = "made to fail"

    def own(self, target: object, statements: Statements, given: object) -> CallersConnection | None:
        if isinstance(target, psycopg.AsyncConnection):
            return AsyncPsycopg(target, statements, given)
        if isinstance(target, psycopg.Connection):
            return Psycopg(target, statements, given)
        return Asyncpg(target, statements, given) if is_class(target, *ASYNCPG) else None

    def run(self, connection: CallersConnection, name: str, params: Params = NO_PARAMS) -> Steps[Rows]:
        driver = connection.driver
        must_answer_at_once(driver)
        must_keep_text(driver, params)
        with text_must_fit():
            rows = yield Run(name, params)
        return readable(rows)

    def poison(self, connection: CallersConnection) -> Steps[None]:
        """Make the caller's whole transaction unable to commit.

        If a savepoint may be open, or the transaction cannot be made to fail, the connection is ended instead: to make
        the transaction fail would also end the savepoint, and the caller's library would raise an error about that.
        """
        if connection.in_savepoint or not (yield from self._made_to_fail(connection)):
            yield End.CLOSE

    def _made_to_fail(self, connection: CallersConnection) -> Steps[bool]:
        """Make the whole transaction fail, with every savepoint in it. False: it may still be able to commit."""
        try:
            yield from self.run(connection, "leave_savepoints")
            yield from self.run(connection, "poison")
        except Exception as error:  # noqa: BLE001 - whatever prevents the failure, return False
            return sqlstate_of(error) in POISONED
        return False

    def write(
        self, connection: CallersConnection, name: str, batch: Sequence[Params], refusals: Refusals
    ) -> Steps[list[Rows]]:
        if connection.is_autocommit:
            raise refusals.outside(connection)
        return (yield from super().write(connection, name, batch, refusals))

    def is_elsewhere(self, error: Exception) -> bool:
        return sqlstate_of(error) in NOT_THERE

    def fault(self, error: Exception, statements: Statements) -> BaseException:
        cause = getattr(error, "orig", error)
        if not isinstance(cause, psycopg.Error):
            return error
        return granting(faults.of_statement(cause), statements.init_option)


class PostgresFence(CallersFence):
    """The fence on PostgreSQL: checks and locks the lease row inside a transaction on a connection that a caller gave.

    `is_own`: the connection is the store's own. It leads to the store's database for sure, so an absent lease table or
    another lease there is not reported as `wrong_store`.
    """

    def __init__(self, statements: Statements, commits: Commits, is_own: bool = False) -> None:
        super().__init__(PostgresDialect(), statements)
        self._commits, self._is_own = commits, is_own

    def check(self, connection: CallersConnection) -> None:
        super().check(connection)
        if isinstance(connection.target, psycopg.Connection | psycopg.AsyncConnection):
            self._commits.watch_caller(connection.target)

    def ask(self, connection: CallersConnection, key: TermKey) -> Steps[FenceholdError | None]:
        token = mark()
        values = {**params(key), "mark": token, "own": self._is_own, "sync_commit": self._commits.sync_commit}
        [(epoch, is_ours, standbys)] = yield from self.dialect.run(connection, "fence", values)
        if epoch is not None:
            if (yield from self.dialect.run(connection, "fence_kept")) != [(token,)]:
                raise self.outside(connection)
            self._commits.fenced(standbys)
            return None
        if not is_ours and not self._is_own:
            return wrong_store.of_fence(key)
        return refusal(key, (yield from self.dialect.run(connection, "isolation")))

    def failure(self, error: BaseException, key: TermKey) -> BaseException | None:
        """Return the error to raise for `error`, which a statement of the fence raised; None: raise `error` itself.

        With any result but None the transaction must also be made to fail. An error of psycopg becomes one of ours; an
        error of SQLAlchemy or of another driver is returned unchanged, unless it says that our tables are not there
        (wrong_store).
        """
        if not isinstance(error, Exception) or (isinstance(error, FenceholdError) and error.code not in MUST_FAIL):
            return None
        if self.dialect.is_elsewhere(error) and not self._is_own:
            return wrong_store.of_fence(key)
        return of_fence(error, key) if isinstance(error, psycopg.Error) else error


class PostgresCallersOutbox(CallersOutbox):
    def __init__(self, statements: Statements, run: RunsOwn) -> None:
        super().__init__(PostgresDialect(), statements, run)

    def batch(self, events: Sequence[NewEvent], outbox_id: str) -> Sequence[Params]:
        return [event_rows.add_params(events, outbox_id)]

    def ids_added(self, connection: CallersConnection, batch: Sequence[Params], answers: Sequence[Rows]) -> list[str]:
        [rows] = answers
        if rows == [(None,)]:
            raise self.elsewhere()
        return [tracking_id for (tracking_id,) in rows]

    def is_first(self, connection: CallersConnection, rows: Rows) -> bool:
        [(is_first, is_ours)] = rows
        if not is_ours:
            raise self.elsewhere()
        return bool(is_first)


def params(key: TermKey) -> dict[str, Any]:
    return {
        "name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id,
        "limit_ms": limit_ms(key),
    }  # fmt: skip


def limit_ms(key: TermKey) -> str:
    """Return half of the lease in ms, as text: the limit for one statement, and for one pause, in a fenced transaction.

    A statement and a pause after it together therefore never last longer than one lease.
    """
    return str(min(LIMIT_MS_MAX, max(1, int(key.lease_s * 500))))


def mark() -> str:
    """Return a new random text, which the fence stores in a setting of its transaction.

    Whoever reads the setting later knows by the text whether it is still the same transaction.
    """
    return secrets.token_hex(8)


def refusal(key: TermKey, isolation: Rows) -> FenceholdError:
    if isolation == [(SNAPSHOT_SEES_ALL,)]:
        return lost(key, "the store refused the fence; this transaction was made to fail")
    [(level,)] = isolation
    return ConfigurationError(
        f"This transaction ({level}) reads from an older snapshot, in which the lease looks expired; it was "
        "made to fail.",
        hint="Fence first thing in a repeatable read or serializable transaction, before any other statement.",
        code="snapshot_too_old",
    )


def of_fence(error: psycopg.Error, key: TermKey) -> FenceholdError:
    if isinstance(error, psycopg.errors.SerializationFailure):
        return lost(key, "the lease row changed under this transaction's snapshot")
    return faults.of_fenced(error, int(limit_ms(key)) / 1000)


def must_answer_at_once(connection: object) -> None:
    """Raise ConfigurationError (pipeline_on) if the connection is in psycopg's pipeline mode.

    In that mode the server's answer comes later, so a refusal (another database, a lost lease) would not be noticed.
    """
    if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConfigurationError(
            "The connection is in pipeline mode: the database's answer would not be known in time. Nothing was sent.",
            hint="Call this before `conn.pipeline()` begins or after it has ended, in the same transaction.",
            code="pipeline_on",
        )


def sqlstate_of(error: Exception) -> str | None:
    """Return the SQLSTATE of a driver's error, also inside an error of SQLAlchemy; None if it has none.

    psycopg and asyncpg name the attribute `sqlstate`, psycopg2 names it `pgcode`.
    """
    cause = getattr(error, "orig", error)
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
