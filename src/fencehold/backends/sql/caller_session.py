"""Runs text statements on a caller's connection that is not a plain driver connection, all in the same way.

These are SQLAlchemy's sessions and connections (SQLModel's among them), sync and async, Django's connection, and raw
connections of asyncpg and aiosqlite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencehold.backends.sql.raw_async import RawAsync, raw_async
from fencehold.model.errors import ConfigurationError


def unwrapped(target: Any, dialect: str) -> Any:
    """Return the session behind a registry, or the driver's connection behind Django's; anything else unchanged.

    A raw connection of an async driver for this dialect is wrapped as a RawAsync, which the functions here accept like
    an async session. Raises ConfigurationError (bad_connection) if Django has no connection open.
    """
    if is_of(target, "sqlalchemy.orm.scoping", "sqlalchemy.ext.asyncio.scoping"):
        return target()
    if is_of(target, "django") and hasattr(target, "ensure_connection"):
        if target.connection is None:
            raise ConfigurationError(
                "Django's connection is not open, so it is in no transaction; nothing was written.",
                hint="Use it inside `with transaction.atomic():`, in the same thread.",
                code="bad_connection",
            )
        return target.connection
    return raw_async(target, dialect) or target


def is_sqlalchemy(target: Any, dialect: str) -> bool:
    """Whether `target` is of SQLAlchemy, executes statements (unlike an engine or a transaction), and has this dialect.

    Also true for the RawAsync that `unwrapped` makes of a raw connection of an async driver.
    """
    if isinstance(target, RawAsync):
        return target.dialect == dialect
    return is_of(target, "sqlalchemy") and hasattr(target, "execute") and _dialect_of(target) in (dialect, "")


def kind_of(target: object) -> str:
    """Return the class of `target` for a message and, for SQLAlchemy, the kind of database it connects to."""
    name = f"{type(target).__module__}.{type(target).__qualname__}"
    return f"{name} on {found}" if is_of(target, "sqlalchemy") and (found := _dialect_of(target)) else name


def _dialect_of(target: Any) -> str:
    """Return the dialect's name; empty if it is unknown, as for a session with another engine for each table."""
    try:
        return str((target.get_bind() if hasattr(target, "get_bind") else target).dialect.name)
    except Exception:  # noqa: BLE001 - the statement itself then fails with the cause
        return ""


def is_async(target: Any) -> bool:
    return isinstance(target, RawAsync) or is_of(target, "sqlalchemy.ext.asyncio")


def prepared(sql: str) -> Any:
    """`sql` with `:name` parameters as SQLAlchemy's text()."""
    from sqlalchemy import text

    return text(sql)


def run(target: Any, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement on a sync session or connection and return its rows."""
    result = _connection(target).execute(prepared(sql), dict(params))
    return [tuple(row) for row in result] if result.returns_rows else []


async def run_async(target: Any, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement on an AsyncSession, an AsyncConnection or a raw connection and return its rows."""
    if isinstance(target, RawAsync):
        return await target.run(sql, params)
    result = await (await _connection_async(target)).execute(prepared(sql), dict(params))
    return [tuple(row) for row in result] if result.returns_rows else []


def driver_connection(target: Any) -> Any:
    """The driver's own connection under a sync session or connection."""
    return _connection(target).connection.driver_connection


def is_autocommit(target: Any) -> bool:
    """Whether each write on a sync session or connection is committed at once; all drivers under SQLAlchemy show it."""
    return getattr(_connection(target).connection.dbapi_connection, "autocommit", False) is True


async def is_autocommit_async(target: Any) -> bool:
    if isinstance(target, RawAsync):
        return not target.in_transaction()
    return is_autocommit((await _connection_async(target)).sync_connection)


async def driver_connection_async(target: Any) -> Any:
    """The same under an AsyncSession or AsyncConnection, or a raw connection."""
    if isinstance(target, RawAsync):
        return target.connection
    return driver_connection((await _connection_async(target)).sync_connection)


def in_savepoint(target: Any) -> bool:
    """Whether SQLAlchemy has a savepoint open there, to which the caller can roll back after an error and go on."""
    return bool(_connection(target).in_nested_transaction())


async def in_savepoint_async(target: Any) -> bool:
    return not isinstance(target, RawAsync) and in_savepoint((await _connection_async(target)).sync_connection)


def cut_off(target: Any) -> None:
    """Invalidate the driver's connection: SQLAlchemy then refuses all statements until everything is rolled back."""
    _connection(target).invalidate()


async def cut_off_async(target: Any) -> None:
    await (await _connection_async(target)).invalidate()


def roll_back_all(target: Any) -> None:
    """Undo the whole transaction. If a savepoint is open, invalidate the connection, so that nothing can follow."""
    if in_savepoint(target):
        cut_off(target)
    else:
        target.rollback()


async def roll_back_all_async(target: Any) -> None:
    if await in_savepoint_async(target):
        await cut_off_async(target)
    else:
        await target.rollback()


def _connection(target: Any) -> Any:
    """Return a session's connection, or `target` itself. SQLModel's own execute() is deprecated, and warns."""
    return target.connection() if callable(getattr(target, "connection", None)) else target


async def _connection_async(target: Any) -> Any:
    return await target.connection() if hasattr(target, "sync_session") else target


def is_of(target: object, *packages: str) -> bool:
    """Whether the class of `target`, or a base class, is from one of these packages; they need not be installed."""
    modules = {base.__module__ for base in type(target).__mro__}
    return any(module == one or module.startswith(f"{one}.") for module in modules for one in packages)
