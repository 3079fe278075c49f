"""Events added, and met for the first time, inside a transaction that the caller owns."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from fencehold.backends import sql_session
from fencehold.backends.postgres import faults
from fencehold.backends.postgres.callers import AsyncDoor, AsyncSessionDoor, Rows, SessionDoor, SyncDoor
from fencehold.backends.ready import Ready
from fencehold.backends.sql_text import Statements
from fencehold.model.errors import ConfigurationError


def add_in(statements: Statements, target: object, params: Mapping[str, Any]) -> Awaitable[list[str]]:
    """On a sync connection it is done when this returns; the result can be awaited in either case."""
    door = door_to(statements, target)
    if isinstance(door, (AsyncDoor, AsyncSessionDoor)):
        return _add_async(door, params)
    return Ready([row[0] for row in run(door, "add", params)])


async def _add_async(door: AsyncDoor | AsyncSessionDoor, params: Mapping[str, Any]) -> list[str]:
    return [row[0] for row in await run_async(door, "add", params)]


def first_time(statements: Statements, target: object, params: Mapping[str, Any]) -> Awaitable[bool]:
    door = door_to(statements, target)
    if isinstance(door, (AsyncDoor, AsyncSessionDoor)):
        return _first_time_async(door, params)
    return Ready(bool(run(door, "first_time", params)))


async def _first_time_async(door: AsyncDoor | AsyncSessionDoor, params: Mapping[str, Any]) -> bool:
    return bool(await run_async(door, "first_time", params))


def run(door: SyncDoor | SessionDoor, name: str, params: Mapping[str, Any]) -> Rows:
    try:
        if isinstance(door, SessionDoor) and sql_session.is_autocommit(door.target):
            raise outside_transaction()
        return door.run(name, params)
    except Exception as error:
        raise _sorted(error) from error


async def run_async(door: AsyncDoor | AsyncSessionDoor, name: str, params: Mapping[str, Any]) -> Rows:
    try:
        if isinstance(door, AsyncSessionDoor) and await sql_session.is_autocommit_async(door.target):
            raise outside_transaction()
        return await door.run(name, params)
    except Exception as error:
        raise _sorted(error) from error


def _sorted(error: Exception) -> Exception:
    """SQLAlchemy's errors carry the driver's; those of anybody else stay as they are."""
    cause = getattr(error, "orig", error)
    return faults.of_statement(cause) if isinstance(cause, psycopg.Error) else error


def door_to(statements: Statements, target: object) -> SyncDoor | AsyncDoor | SessionDoor | AsyncSessionDoor:
    if isinstance(target, psycopg.AsyncConnection):
        _must_be_in_transaction(target)
        return AsyncDoor(target, statements)
    if isinstance(target, psycopg.Connection):
        _must_be_in_transaction(target)
        return SyncDoor(target, statements)
    if sql_session.is_sqlalchemy(target) and callable(getattr(target, "execute", None)):
        return (AsyncSessionDoor if sql_session.is_async(target) else SessionDoor)(target, statements)
    raise ConfigurationError(
        f"tx cannot be a {type(target).__module__}.{type(target).__qualname__}; nothing was written.",
        hint="Give a psycopg connection (sync or async) or a SQLAlchemy session or connection, or leave tx out.",
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
