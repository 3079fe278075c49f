"""The fence in a transaction that the caller owns: psycopg connections, SQLAlchemy sessions, sync and async.

A refusal makes the caller's transaction unable to commit, whatever the caller does with the error.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from fencehold.backends import sql_session
from fencehold.backends.postgres import faults
from fencehold.backends.postgres.blocking import lost
from fencehold.backends.sql_text import Statements
from fencehold.model.errors import ConfigurationError
from fencehold.model.leases import TermKey
from fencehold.ports.fence import DONE

SNAPSHOT_SEES_ALL = "read committed"
LIMIT_MS_MAX = 2**31 - 1

Rows = list[tuple[Any, ...]]


def params(key: TermKey) -> dict[str, Any]:
    return {"name": key.name, "holder": key.holder_id, "epoch": key.epoch, "limit_ms": limit_ms(key)}


def limit_ms(key: TermKey) -> str:
    """Half the lease: a statement and a pause after it together never outlast one lease."""
    return str(min(LIMIT_MS_MAX, max(1, int(key.lease_s * 500))))


def mark() -> str:
    """What the fence leaves in its transaction; nobody else's setting can look like it."""
    return secrets.token_hex(8)


def fence(statements: Statements, target: object, key: TermKey, over: bool) -> Awaitable[None]:
    """`over`: the term has already ended here, so nothing is asked and the transaction is only made to fail."""
    if isinstance(target, psycopg.AsyncConnection):
        must_be_in_transaction(target)
        return _fence_async(AsyncDoor(target, statements), key, over)
    if isinstance(target, psycopg.Connection):
        must_be_in_transaction(target)
        fence_sync(SyncDoor(target, statements), key, over)
        return DONE
    if sql_session.is_sqlalchemy(target):
        if sql_session.is_async(target):
            return _fence_async(AsyncSessionDoor(target, statements), key, over)
        fence_sync(SessionDoor(target, statements), key, over)
        return DONE
    raise ConfigurationError(
        f"term.fence() cannot use a {type(target).__module__}.{type(target).__qualname__}.",
        hint="Give a psycopg connection (sync or async) or a SQLAlchemy session or connection.",
        code="bad_connection",
    )


async def spoil(statements: Statements, target: Any) -> None:
    """Nothing that was begun on `target` and not committed yet can be committed afterwards."""
    if sql_session.is_sqlalchemy(target):
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


class SyncDoor:
    """A psycopg connection. Its own cursor: the caller's factories may return anything."""

    def __init__(self, target: psycopg.Connection[Any], statements: Statements) -> None:
        self._target, self._statements = target, statements

    def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        cursor = psycopg.Cursor(self._target, row_factory=tuple_row)
        cursor.execute(self._statements[name].encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def poison(self) -> None:
        with suppress(psycopg.Error):
            self.run("poison", {})
        if is_nested(self._target):
            self._target.close()  # a failed savepoint can be rolled back to; a closed connection commits nothing


class AsyncDoor:
    def __init__(self, target: psycopg.AsyncConnection[Any], statements: Statements) -> None:
        self._target, self._statements = target, statements

    async def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        cursor = psycopg.AsyncCursor(self._target, row_factory=tuple_row)
        await cursor.execute(self._statements[name].encode(), values or None)
        return await cursor.fetchall() if cursor.description else []

    async def poison(self) -> None:
        with suppress(psycopg.Error):
            await self.run("poison", {})
        if is_nested(self._target):
            await self._target.close()


class SessionDoor:
    """A SQLAlchemy session or connection, over whatever driver."""

    def __init__(self, target: Any, statements: Statements) -> None:
        self.target, self._statements = target, statements

    def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        return sql_session.run(self.target, self._statements.named(name), values)

    def poison(self) -> None:
        with suppress(Exception):  # as it must: from here on the server refuses everything but a rollback
            self.run("poison", {})


class AsyncSessionDoor:
    def __init__(self, target: Any, statements: Statements) -> None:
        self.target, self._statements = target, statements

    async def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        return await sql_session.run_async(self.target, self._statements.named(name), values)

    async def poison(self) -> None:
        with suppress(Exception):
            await self.run("poison", {})


def fence_sync(door: SyncDoor | SessionDoor, key: TermKey, over: bool = False) -> None:
    refusal: Exception = lost(key, "the term is over; this transaction was made to fail")
    if not over:
        token = mark()
        try:
            if door.run("fence", {**params(key), "mark": token}):
                if door.run("fence_kept", {}) != [(token,)]:
                    raise outside_transaction()
                return
            refusal = _refusal(key, door.run("isolation", {}))
        except psycopg.Error as error:
            raise of_fence(error, key) from error
    door.poison()
    raise refusal


async def _fence_async(door: AsyncDoor | AsyncSessionDoor, key: TermKey, over: bool) -> None:
    refusal: Exception = lost(key, "the term is over; this transaction was made to fail")
    if not over:
        token = mark()
        try:
            if await door.run("fence", {**params(key), "mark": token}):
                if await door.run("fence_kept", {}) != [(token,)]:
                    raise outside_transaction()
                return
            refusal = _refusal(key, await door.run("isolation", {}))
        except psycopg.Error as error:
            raise of_fence(error, key) from error
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
    return faults.of_statement(error)


def must_be_in_transaction(target: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if target.autocommit and target.info.transaction_status == TransactionStatus.IDLE:
        raise outside_transaction()


def is_nested(target: Any) -> bool:
    """Inside `with conn.transaction():` within another transaction psycopg works with savepoints."""
    return int(getattr(target, "_num_transactions", 0)) > 0


def outside_transaction() -> ConfigurationError:
    return ConfigurationError(
        "term.fence() needs an open transaction: in autocommit its lock would be gone before your write.",
        hint="Open a transaction first (`async with conn.transaction():`), then fence, then write.",
        code="fence_outside_transaction",
    )
