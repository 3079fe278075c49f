"""Migrations on PostgreSQL: all steps run in one transaction, under an advisory lock that ends with it.

A statement that changes a table waits for every open transaction that uses the table, and later requests, such as
renewals of leases, wait behind it. So a wait for a lock is kept short: when it is over, the transaction is rolled back
and tried again after a pause.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg

from fencehold.backends.postgres import faults, session_limits, wire
from fencehold.backends.sql.callers.connections import Run
from fencehold.backends.sql.lock_patience import LOCK_WAIT_S_MAX, LockPatience
from fencehold.backends.sql.migrations import Migrations, Steps
from fencehold.backends.sql.statements import Statements, Step
from fencehold.backends.sql.steps import awaited
from fencehold.model.errors import ConfigurationError
from fencehold.ports.schema import Waits, unheard
from fencehold.ports.time_limit import fixed

T = TypeVar("T")


class PostgresSchema:
    def __init__(self, info: str, statements: Statements) -> None:
        self._info = info
        self._statements = statements
        self._tables = Migrations(statements)

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        left_s = fixed(limit_s)
        patience = LockPatience(f"The table {self._statements.table}", waits, left_s)
        connection = await wire.connect(self._info, min(limit_s, wire.CONNECT_LIMIT_S), autocommit=False)
        try:
            with wire.lent(connection):
                await wire.bounded(connection, self._lift_limits(connection), left_s)
                return await wire.bounded(connection, self._tried(connection, patience), left_s)
        except psycopg.Error as error:
            # Given up while it waited for locks, before the commit: the transaction is rolled back with the connection.
            raise patience.busy() or faults.of_init(error, self._statements.init_option) from None

    async def _lift_limits(self, connection: wire.Connection) -> None:
        await session_limits.lifted(connection, self._statements)
        await connection.commit()  # else a rollback would restore them

    async def missing(self, limit_s: float) -> list[str]:
        return await self._asked(self._tables.missing(), limit_s)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return await self._asked(self._judged(), limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._asked(self._rights(), limit_s)

    async def _asked(self, steps: Steps[T], limit_s: float) -> T:
        connection = await wire.connect(self._info, min(limit_s, wire.CONNECT_LIMIT_S), autocommit=True)
        try:
            with wire.lent(connection):
                return await wire.bounded(connection, self._awaited(connection, steps), fixed(limit_s))
        except psycopg.Error as error:
            raise faults.of_statement(error) from None

    async def _awaited(self, connection: wire.Connection, steps: Steps[T]) -> T:
        return await awaited(steps, lambda asked: self._answer(connection, asked))

    async def _answer(self, connection: wire.Connection, asked: Run | Step) -> list[tuple[Any, ...]]:
        if isinstance(asked, Step):
            await connection.execute(asked.sql.encode())  # as bytes, psycopg runs a composed text unchanged
            return []
        cursor = await connection.execute(self._statements[asked.name], asked.params or None)
        return await cursor.fetchall() if cursor.description else []

    def _judged(self) -> Steps[ConfigurationError | None]:
        if not (yield from self._tables.missing()):
            return None
        found = yield from self._tables.judged()
        if found is not None and found.code == "schema_missing":
            return (yield from self._unmakeable()) or found
        return found

    def _unmakeable(self) -> Steps[ConfigurationError | None]:
        """Return the error that says why this role cannot make missing tables; None if it can make them."""
        table = self._statements.table
        rights = yield Run("schema_rights", {"table": table})
        if not rights:
            return None if "." in table else faults.no_usable_schema()
        [(schema, may_use, may_create)] = rights
        return None if may_use and may_create else faults.unmakeable(schema, self._statements.init_option)

    def _rights(self) -> Steps[list[str]]:
        rows = yield Run("rights_missing")
        return [right for (right,) in rows]

    def script(self) -> str:
        """Return the SQL that makes the tables, for psql. It may be run again: a step that is recorded is skipped."""
        limit = f"SET LOCAL lock_timeout = '{LOCK_WAIT_S_MAX:.0f}s'; -- if it is over, run the script again\n"
        return f"BEGIN;\n{limit}{self._statements.script(once=_once)}\nCOMMIT;\n"

    async def _tried(self, connection: wire.Connection, patience: LockPatience) -> list[str]:
        while True:
            try:
                return await self._apply(connection, patience)
            except pg.LockNotAvailable:
                await connection.rollback()
                await asyncio.sleep(patience.refused(await self._in_use(connection)))

    async def _apply(self, connection: wire.Connection, patience: LockPatience) -> list[str]:
        await connection.execute(self._statements["lock_limit"], {"limit_ms": str(patience.wait_ms)})
        made = await self._awaited(connection, self._made())
        if made:
            patience.ends()
            await connection.commit()
        return made

    def _made(self) -> Steps[list[str]]:
        if (yield from self._is_current()):  # the usual case: takes no lock, however many programs start at once
            return []
        yield Run("steps_lock")
        return (yield from self._tables.made())

    def _is_current(self) -> Steps[bool]:
        if not ((yield from self._tables.says("steps_there")) and (yield from self._tables.says("table_there"))):
            return False
        steps = {step.name for step in self._statements.steps}
        return steps <= (yield from self._tables.applied()) and not (yield from self._tables.missing())

    async def _in_use(self, connection: wire.Connection) -> str:
        """Return in words which sessions use the table, for a message; empty if no session uses it any more."""
        cursor = await connection.execute(self._statements["in_use"], {"table": self._statements.table})
        rows = await cursor.fetchall()
        await connection.rollback()
        sessions = [_session(*row) for row in rows]
        return f" by {' and '.join(sessions)}" if sessions else ""


def _session(pid: int, user: str, program: str, state: str, open_s: float | None) -> str:
    """Return a description of one server session for a message, as far as it is known.

    A user may see neither the state nor the age of another role's transaction.
    """
    who = ", ".join(filter(None, (user, program, state)))
    since = f"; transaction open for {open_s:.1f} s" if open_s is not None else ""
    return f"session {pid} ({who}{since})"


def _once(recorded: str, sql: str) -> str:
    """Return the step `sql` as one statement that does nothing if the SQL condition `recorded` is true."""
    return f"DO $fencehold$ BEGIN IF NOT {recorded} THEN\n{sql}END IF; END $fencehold$;\n"
