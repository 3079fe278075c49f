"""The fence in a transaction that the caller owns: psycopg connections, SQLAlchemy sessions, sync and async.

A refusal makes the caller's transaction unable to commit, whatever the caller does with the error.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from fencehold.backends.postgres import faults
from fencehold.backends.postgres.blocking import lost
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.postgres.encodings import must_keep_text, readable, text_must_fit
from fencehold.backends.sql import begin_hints, wrong_store
from fencehold.backends.sql import caller_session as sql_session
from fencehold.backends.sql.raw_async import RawAsync
from fencehold.backends.sql.statements import Statements
from fencehold.model.election.leases import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.fence import DONE

DIALECT = "postgresql"  # as SQLAlchemy spells it
CONNECTIONS = (
    "a connection to PostgreSQL: of psycopg 3 (not psycopg2), of asyncpg, of Django with psycopg 3, or a SQLAlchemy "
    "session or connection with any driver"
)
SNAPSHOT_SEES_ALL = "read committed"
LIMIT_MS_MAX = 2**31 - 1
MUST_FAIL = ("bad_encoding", "not_in_encoding", "pipeline_on", "no_standby")  # then the transaction must fail too
NOT_THERE = ("42P01", "42703", "3F000")  # undefined table, undefined column, invalid schema name
POISONED = ("P0001", "25P01")  # raised by `poison`; no transaction is open

Rows = list[tuple[Any, ...]]


def params(key: TermKey) -> dict[str, Any]:
    return {
        "name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id,
        "limit_ms": limit_ms(key),
    }  # fmt: skip


def limit_ms(key: TermKey) -> str:
    """Return half the lease: a statement and a pause after it together never last longer than one lease."""
    return str(min(LIMIT_MS_MAX, max(1, int(key.lease_s * 500))))


def mark() -> str:
    """Return a random text that the fence sets in its transaction; no other setting can be equal to it."""
    return secrets.token_hex(8)


def fence(statements: Statements, target: object, key: TermKey, over: bool, commits: Commits) -> Awaitable[None]:
    """`over`: the term has already ended here, so the store is not asked and the transaction is only made to fail."""
    return begin_hints.advised(target, lambda: _fence(statements, target, key, over, commits))


def _fence(statements: Statements, target: object, key: TermKey, over: bool, commits: Commits) -> Awaitable[None]:
    target = sql_session.unwrapped(target, DIALECT)
    if isinstance(target, psycopg.AsyncConnection):
        must_be_in_transaction(target)
        commits.watch_caller(target)
        return _fence_async(AsyncDoor(target, statements), key, over, commits)
    if isinstance(target, psycopg.Connection):
        must_be_in_transaction(target)
        commits.watch_caller(target)
        fence_sync(SyncDoor(target, statements), key, commits, over)
        return DONE
    if sql_session.is_sqlalchemy(target, DIALECT):
        if sql_session.is_async(target):
            return _fence_async(AsyncSessionDoor(target, statements), key, over, commits)
        fence_sync(SessionDoor(target, statements), key, commits, over)
        return DONE
    raise ConfigurationError(
        f"term.fence() cannot use a {sql_session.kind_of(target)}.",
        hint=f"Give {CONNECTIONS}.",
        code="bad_connection",
    )


async def spoil(statements: Statements, target: Any) -> None:
    """After this, nothing that was begun on `target` and not yet committed can be committed."""
    target = sql_session.unwrapped(target, DIALECT)
    if sql_session.is_sqlalchemy(target, DIALECT):
        if not target.in_transaction():
            return
        if sql_session.is_async(target):
            await AsyncSessionDoor(target, statements).poison()
        else:
            SessionDoor(target, statements).poison()
    elif target.info.transaction_status != TransactionStatus.IDLE:
        if isinstance(target, psycopg.AsyncConnection):
            await AsyncDoor(target, statements).poison()
        else:
            SyncDoor(target, statements).poison()


def must_answer_at_once(connection: object) -> None:
    """Raise ConfigurationError if the connection is in psycopg's pipeline mode.

    There the answer comes later, and a refusal (another database, a lost lease) would not be noticed.
    """
    if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConfigurationError(
            "The connection is in pipeline mode: the database's answer would not be known in time. Nothing was sent.",
            hint="Call this before `conn.pipeline()` begins or after it has ended, in the same transaction.",
            code="pipeline_on",
        )


class SyncDoor:
    """A psycopg connection. Uses its own cursor, because the caller's factories may return anything."""

    def __init__(self, target: psycopg.Connection[Any], statements: Statements) -> None:
        self._target, self._statements = target, statements
        self.table = statements.table

    def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        must_answer_at_once(self._target)
        must_keep_text(self._target, values)
        cursor = psycopg.Cursor(self._target, row_factory=tuple_row)
        with text_must_fit():
            cursor.execute(self._statements[name].encode(), values or None)
        return readable(cursor.fetchall()) if cursor.description else []

    def poison(self) -> None:
        """Make the transaction fail. Inside psycopg's own blocks, close the connection instead.

        There the savepoints would be gone, which those blocks would report as an error.
        """
        if is_nested(self._target) or not poisoned(self):
            self._target.close()


class AsyncDoor:
    def __init__(self, target: psycopg.AsyncConnection[Any], statements: Statements) -> None:
        self._target, self._statements = target, statements
        self.table = statements.table

    async def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        must_answer_at_once(self._target)
        must_keep_text(self._target, values)
        cursor = psycopg.AsyncCursor(self._target, row_factory=tuple_row)
        with text_must_fit():
            await cursor.execute(self._statements[name].encode(), values or None)
        return readable(await cursor.fetchall()) if cursor.description else []

    async def poison(self) -> None:
        if is_nested(self._target) or not await poisoned_async(self):
            await self._target.close()


class SessionDoor:
    """A SQLAlchemy session or connection, with any driver."""

    def __init__(self, target: Any, statements: Statements) -> None:
        self.target, self._statements = target, statements
        self.table = statements.table

    def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        driver = sql_session.driver_connection(self.target)
        must_answer_at_once(driver)
        must_keep_text(driver, values)
        with text_must_fit():
            return readable(sql_session.run(self.target, self._statements.named(name), values))

    def poison(self) -> None:
        """Make the transaction fail. Inside `begin_nested()`, end the connection instead.

        SQLAlchemy then refuses everything but rollbacks.
        """
        if sql_session.in_savepoint(self.target) or not poisoned(self):
            sql_session.cut_off(self.target)


class AsyncSessionDoor:
    def __init__(self, target: Any, statements: Statements) -> None:
        self.target, self._statements = target, statements
        self.table = statements.table

    async def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        driver = await sql_session.driver_connection_async(self.target)
        must_answer_at_once(driver)
        must_keep_text(driver, values)
        with text_must_fit():
            return readable(await sql_session.run_async(self.target, self._statements.named(name), values))

    async def poison(self) -> None:
        if isinstance(self.target, RawAsync):
            await self.target.rollback()
        elif await sql_session.in_savepoint_async(self.target) or not await poisoned_async(self):
            await sql_session.cut_off_async(self.target)


def poisoned(door: SyncDoor | SessionDoor) -> bool:
    """Make the whole transaction fail, with every savepoint in it. Return False if it may still be able to commit."""
    try:
        door.run("leave_savepoints", {})
        door.run("poison", {})
    except Exception as error:  # noqa: BLE001 - whatever prevents the failure, return False
        return sqlstate_of(error) in POISONED
    return False


async def poisoned_async(door: AsyncDoor | AsyncSessionDoor) -> bool:
    try:
        await door.run("leave_savepoints", {})
        await door.run("poison", {})
    except Exception as error:  # noqa: BLE001 - whatever prevents the failure, return False
        return sqlstate_of(error) in POISONED
    return False


def fence_sync(
    door: SyncDoor | SessionDoor, key: TermKey, commits: Commits, over: bool = False, own: bool = False
) -> None:
    """`own`: the connection is the store's own, which leads to no other database."""
    refusal: Exception = lost(key, "the term is over; this transaction was made to fail")
    if not over:
        token = mark()
        try:
            values = {**params(key), "mark": token, "own": own, "sync_commit": commits.sync_commit}
            [(epoch, is_ours, standbys)] = door.run("fence", values)
            if epoch is not None:
                if door.run("fence_kept", {}) != [(token,)]:
                    raise outside_transaction()
                commits.fenced(standbys)
                return
            refusal = _refusal(key, door.run("isolation", {})) if is_ours or own else wrong_store.of_fence(key)
        except Exception as error:
            if isinstance(error, FenceholdError) and error.code not in MUST_FAIL:
                raise
            refusal = of_failed(error, key, own)
    door.poison()
    raise refusal


async def _fence_async(door: AsyncDoor | AsyncSessionDoor, key: TermKey, over: bool, commits: Commits) -> None:
    refusal: Exception = lost(key, "the term is over; this transaction was made to fail")
    if not over:
        token = mark()
        try:
            values = {**params(key), "mark": token, "own": False, "sync_commit": commits.sync_commit}
            [(epoch, is_ours, standbys)] = await door.run("fence", values)
            if epoch is not None:
                if await door.run("fence_kept", {}) != [(token,)]:
                    raise outside_transaction()
                commits.fenced(standbys)
                return
            refusal = _refusal(key, await door.run("isolation", {})) if is_ours else wrong_store.of_fence(key)
        except Exception as error:
            if isinstance(error, FenceholdError) and error.code not in MUST_FAIL:
                raise
            refusal = of_failed(error, key)
    await door.poison()
    raise refusal


def _refusal(key: TermKey, isolation: Rows) -> Exception:
    if isolation == [(SNAPSHOT_SEES_ALL,)]:
        return lost(key, "the store refused the fence; this transaction was made to fail")
    return ConfigurationError(
        f"This transaction ({isolation[0][0]}) reads from an older snapshot, in which the lease looks expired; it was "
        "made to fail.",
        hint="Fence first thing in a repeatable read or serializable transaction, before any other statement.",
        code="snapshot_too_old",
    )


def of_fence(error: psycopg.Error, key: TermKey) -> Exception:
    if isinstance(error, psycopg.errors.SerializationFailure):
        return lost(key, "the lease row changed under this transaction's snapshot")
    return faults.of_fenced(error, int(limit_ms(key)) / 1000)


def of_failed(error: Exception, key: TermKey, own: bool = False) -> Exception:
    """The same on a connection of the caller's. Errors of SQLAlchemy and of other drivers stay unchanged."""
    if is_elsewhere(error) and not own:
        return wrong_store.of_fence(key)
    if not isinstance(error, psycopg.Error):
        return error
    fault = of_fence(error, key)
    fault.__cause__ = error
    return fault


def is_elsewhere(error: Exception) -> bool:
    """Whether the error means that our table, or its newest column, is not in this database. In the store's it is."""
    return sqlstate_of(error) in NOT_THERE


def sqlstate_of(error: Exception) -> str | None:
    """Return the SQLSTATE, for SQLAlchemy's errors that of the driver's error; psycopg2 calls it `pgcode`."""
    cause = getattr(error, "orig", error)
    return getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)


def must_be_in_transaction(target: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if target.autocommit and target.info.transaction_status == TransactionStatus.IDLE:
        raise outside_transaction()


def is_nested(target: Any) -> bool:
    """Whether psycopg works with savepoints: inside `with conn.transaction():` within another transaction."""
    return int(getattr(target, "_num_transactions", 0)) > 0


def outside_transaction() -> ConfigurationError:
    return ConfigurationError(
        "term.fence() needs an open transaction: in autocommit its lock would be gone before your write.",
        hint="Open a transaction first (`async with conn.transaction():`), then fence, then write.",
        code="fence_outside_transaction",
    )
