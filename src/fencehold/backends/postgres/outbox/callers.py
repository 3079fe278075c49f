"""Runs `add` and `first_time` of an outbox inside a transaction that the caller owns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from fencehold.backends.postgres import faults
from fencehold.backends.postgres.callers import (
    CONNECTIONS,
    DIALECT,
    AsyncDoor,
    AsyncSessionDoor,
    Rows,
    SessionDoor,
    SyncDoor,
    is_elsewhere,
)
from fencehold.backends.ready import Ready
from fencehold.backends.sql import begin_hints, wrong_store
from fencehold.backends.sql import caller_session as sql_session
from fencehold.backends.sql.statements import Statements, granting
from fencehold.model.errors import ConfigurationError

AnyDoor = SyncDoor | AsyncDoor | SessionDoor | AsyncSessionDoor
T = TypeVar("T")


def add_in(statements: Statements, target: object, params: Mapping[str, Any]) -> Awaitable[list[str]]:
    """On a sync connection it is done when this returns; the result can be awaited in either case."""
    return _run(statements, target, "add", params, _added)


def first_time(statements: Statements, target: object, params: Mapping[str, Any]) -> Awaitable[bool]:
    return _run(statements, target, "first_time", params, _is_first)


def _run(
    statements: Statements, target: object, name: str, params: Mapping[str, Any], finish: Callable[[Rows], T | None]
) -> Awaitable[T]:
    """`finish` makes the result from the rows, or returns None if they show that this is another outbox."""
    return begin_hints.advised(target, lambda: _ask(statements, target, name, params, finish))


def _ask(
    statements: Statements, target: object, name: str, params: Mapping[str, Any], finish: Callable[[Rows], T | None]
) -> Awaitable[T]:
    door = door_to(statements, target)

    def answer(rows: Rows) -> T:
        found = finish(rows)
        if found is None:
            raise wrong_store.of_outbox(statements.table)
        return found

    async def awaited(door: AsyncDoor | AsyncSessionDoor) -> T:
        return answer(await run_async(door, name, params))

    return awaited(door) if isinstance(door, (AsyncDoor, AsyncSessionDoor)) else Ready(answer(run(door, name, params)))


def _added(rows: Rows) -> list[str] | None:
    return None if rows == [(None,)] else [row[0] for row in rows]


def _is_first(rows: Rows) -> bool | None:
    [(is_first, is_ours)] = rows
    return bool(is_first) if is_ours else None


def run(door: SyncDoor | SessionDoor, name: str, params: Mapping[str, Any]) -> Rows:
    try:
        if isinstance(door, SessionDoor) and sql_session.is_autocommit(door.target):
            raise outside_transaction()
        return door.run(name, params)
    except Exception as error:
        raise _sorted(error, door) from error


async def run_async(door: AsyncDoor | AsyncSessionDoor, name: str, params: Mapping[str, Any]) -> Rows:
    try:
        if isinstance(door, AsyncSessionDoor) and await sql_session.is_autocommit_async(door.target):
            raise outside_transaction()
        return await door.run(name, params)
    except Exception as error:
        raise _sorted(error, door) from error


def _sorted(error: Exception, door: AnyDoor) -> Exception:
    """Return our error for a driver's error, also inside SQLAlchemy's; any other error unchanged."""
    if is_elsewhere(error):
        return wrong_store.of_outbox(door.table)
    cause = getattr(error, "orig", error)
    if not isinstance(cause, psycopg.Error):
        return error
    return granting(faults.of_statement(cause), f" --outbox {door.table}")


def door_to(statements: Statements, target: object) -> AnyDoor:
    target = sql_session.unwrapped(target, DIALECT)
    if isinstance(target, psycopg.AsyncConnection):
        _must_be_in_transaction(target)
        return AsyncDoor(target, statements)
    if isinstance(target, psycopg.Connection):
        _must_be_in_transaction(target)
        return SyncDoor(target, statements)
    if sql_session.is_sqlalchemy(target, DIALECT):
        return (AsyncSessionDoor if sql_session.is_async(target) else SessionDoor)(target, statements)
    raise ConfigurationError(
        f"tx cannot be a {sql_session.kind_of(target)}; nothing was written.",
        hint=f"Give {CONNECTIONS}; or leave tx out.",
        code="bad_connection",
    )


def _must_be_in_transaction(target: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if target.closed:
        raise ConfigurationError("The connection given as tx is closed; nothing was written.", code="bad_connection")
    if target.autocommit and target.info.transaction_status == TransactionStatus.IDLE:
        raise outside_transaction()


def outside_transaction() -> ConfigurationError:
    return ConfigurationError(
        "The connection given as tx is in autocommit and in no transaction: the event would be stored even if "
        "your own change is not. Nothing was written.",
        hint="Open a transaction first (`async with conn.transaction():`), or leave tx out.",
        code="add_outside_transaction",
    )
