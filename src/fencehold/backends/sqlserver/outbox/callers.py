"""Runs `add` and `first_time` of an outbox inside a transaction that the caller owns.

Only the server knows whether one is open: a driver may begin it with its first statement, a caller with a BEGIN
TRANSACTION of its own. So the statements check it, and write nothing outside of one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from fencehold.backends.ready import Ready
from fencehold.backends.sql import begin_hints, wrong_store
from fencehold.backends.sql import caller_session as sql_session
from fencehold.backends.sql.statements import Statements, granting
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.batch import Rows
from fencehold.backends.sqlserver.callers import DIALECT
from fencehold.backends.sqlserver.params import bound
from fencehold.model.errors import ConfigurationError, FenceholdError

OUTSIDE, ELSEWHERE = "outside", "elsewhere"

T = TypeVar("T")
Params = Mapping[str, Any]


def add_in(statements: Statements, target: object, params: Params) -> Awaitable[list[str]]:
    """On a sync connection it is done when this returns; the result can be awaited in either case."""
    return _run(statements, target, "add", params, lambda rows: [row[1] for row in rows])


def first_time(statements: Statements, target: object, params: Params) -> Awaitable[bool]:
    return _run(statements, target, "first_time", params, lambda rows: bool(rows[0][0] == "first"))


def _run(statements: Statements, target: Any, name: str, params: Params, finish: Callable[[Rows], T]) -> Awaitable[T]:
    return begin_hints.advised(target, lambda: _ask(statements, target, name, params, finish))


def _ask(statements: Statements, target: Any, name: str, params: Params, finish: Callable[[Rows], T]) -> Awaitable[T]:
    sql, table = statements.named(name), statements.table
    target = sql_session.unwrapped(target, DIALECT)
    if sql_session.is_sqlalchemy(target, DIALECT):
        if sql_session.is_async(target):
            return _run_async(target, statements, name, params, finish)
        return Ready(finish(_within(_sorted(lambda: sql_session.run(target, sql, params), table), table)))
    if isinstance(target, driver.Connection):
        return Ready(finish(_within(_sorted(lambda: batch.rows(target, *bound(sql, params)), table), table)))
    raise ConfigurationError(
        f"tx cannot be a {sql_session.kind_of(target)}; nothing was written.",
        hint="Give an mssql-python connection or a SQLAlchemy session or connection (sync or async), or leave tx out.",
        code="bad_connection",
    )


async def _run_async(target: Any, statements: Statements, name: str, params: Params, finish: Callable[[Rows], T]) -> T:
    try:
        rows = await sql_session.run_async(target, statements.named(name), params)
    except Exception as error:
        raise _fault(error, statements.table) from error
    return finish(_within(rows, statements.table))


def _sorted(run: Callable[[], Rows], table: str) -> Rows:
    try:
        return run()
    except Exception as error:
        raise _fault(error, table) from error


def _fault(error: Exception, table: str) -> BaseException:
    fault = faults.of_callers(error)
    if wrong_store.is_elsewhere(fault):
        return wrong_store.of_outbox(table)
    return granting(fault, f" --outbox {table}") if isinstance(fault, FenceholdError) else fault


def _within(rows: Rows, table: str) -> Rows:
    if rows and rows[0][0] == ELSEWHERE:
        raise wrong_store.of_outbox(table)
    if rows and rows[0][0] == OUTSIDE:
        raise ConfigurationError(
            "The connection given as tx is in autocommit and in no transaction: the event would be stored even if "
            "your own change is not. Nothing was written.",
            hint="Connect with autocommit=False or run BEGIN TRANSACTION first, or leave tx out.",
            code="add_outside_transaction",
        )
    return rows
