"""SQLAlchemy sessions and connections, sync and async, as one thing that runs a text statement."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


def is_sqlalchemy(target: object) -> bool:
    return any(base.__module__.partition(".")[0] == "sqlalchemy" for base in type(target).__mro__)


def is_async(target: Any) -> bool:
    return inspect.iscoroutinefunction(getattr(target, "execute", None))


def prepared(sql: str) -> Any:
    """`sql` with `:name` parameters as SQLAlchemy's text()."""
    from sqlalchemy import text

    return text(sql)


def run(target: Any, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Rows of a statement on a sync session or connection."""
    result = target.execute(prepared(sql), dict(params))
    return [tuple(row) for row in result] if result.returns_rows else []


async def run_async(target: Any, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The same on an AsyncSession or AsyncConnection."""
    result = await target.execute(prepared(sql), dict(params))
    return [tuple(row) for row in result] if result.returns_rows else []


def driver_connection(target: Any) -> Any:
    """The driver's own connection under a sync session or connection."""
    connection = target.connection() if callable(getattr(target, "connection", None)) else target
    return connection.connection.driver_connection


def is_autocommit(target: Any) -> bool:
    """Whether what a sync session or connection writes is kept at once: every driver under SQLAlchemy says it so."""
    connection = target.connection() if callable(getattr(target, "connection", None)) else target
    return getattr(connection.connection.dbapi_connection, "autocommit", False) is True


async def is_autocommit_async(target: Any) -> bool:
    connection = await target.connection() if hasattr(target, "sync_session") else target
    return is_autocommit(connection.sync_connection)


async def driver_connection_async(target: Any) -> Any:
    """The same under an AsyncSession or AsyncConnection."""
    connection = await target.connection() if hasattr(target, "sync_session") else target
    return connection.sync_connection.connection.driver_connection
