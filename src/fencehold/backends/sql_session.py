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


class Done:
    """Nothing left to await: lets `await term.fence(conn)` be written for every kind of connection."""

    def __await__(self) -> Any:
        return
        yield  # makes this a generator, which an awaitable needs


DONE = Done()
