"""Events added, and met for the first time, inside a transaction that the caller owns.

Whether one is open only the server knows: a driver may begin it with its first statement, a caller with a BEGIN
TRANSACTION of its own. So the statements ask, and write nothing outside of one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from fencehold.backends import sql_session
from fencehold.backends.ready import Ready
from fencehold.backends.sql_text import Statements
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.params import bound
from fencehold.model.errors import ConfigurationError

OUTSIDE = "outside"

T = TypeVar("T")
Params = Mapping[str, Any]


def add_in(statements: Statements, target: object, params: Params) -> Awaitable[list[str]]:
    """On a sync connection it is done when this returns; the result can be awaited in either case."""
    return _run(statements, target, "add", params, lambda rows: [row[1] for row in rows])


def first_time(statements: Statements, target: object, params: Params) -> Awaitable[bool]:
    return _run(statements, target, "first_time", params, lambda rows: bool(rows[0][0] == "first"))


def _run(statements: Statements, target: Any, name: str, params: Params, finish: Callable[[Rows], T]) -> Awaitable[T]:
    sql = statements.named(name)
    if sql_session.is_sqlalchemy(target) and callable(getattr(target, "execute", None)):
        if sql_session.is_async(target):
            return _run_async(target, sql, params, finish)
        return Ready(finish(_within(_sorted(lambda: sql_session.run(target, sql, params)))))
    if isinstance(target, driver.Connection):
        return Ready(finish(_within(_sorted(lambda: batch.rows(target, *bound(sql, params))))))
    raise ConfigurationError(
        f"tx cannot be a {type(target).__module__}.{type(target).__qualname__}; nothing was written.",
        hint="Give an mssql-python connection or a SQLAlchemy session or connection (sync or async), or leave tx out.",
        code="bad_connection",
    )


async def _run_async(target: Any, sql: str, params: Params, finish: Callable[[Rows], T]) -> T:
    try:
        rows = await sql_session.run_async(target, sql, params)
    except Exception as error:
        raise faults.of_callers(error) from error
    return finish(_within(rows))


def _sorted(run: Callable[[], Rows]) -> Rows:
    try:
        return run()
    except Exception as error:
        raise faults.of_callers(error) from error


def _within(rows: Rows) -> Rows:
    if rows and rows[0][0] == OUTSIDE:
        raise ConfigurationError(
            "The connection given as tx is in autocommit and in no transaction: the event would be stored even if "
            "your own change is not. Nothing was written.",
            hint="Connect with autocommit=False or run BEGIN TRANSACTION first, or leave tx out.",
            code="add_outside_transaction",
        )
    return rows
