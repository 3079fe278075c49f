"""Migrations on PostgreSQL: all steps in one transaction, under an advisory lock that ends with it.

A statement that changes a table waits for every open transaction that uses it, and later requests queue behind that
wait, renewals of leases among them. So waits for a lock are short: the transaction is rolled back, and tried again
after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg

from fencehold.backends.postgres import faults, session_limits, wire
from fencehold.backends.sql.lock_patience import LOCK_WAIT_S_MAX, LockPatience
from fencehold.backends.sql.statements import Statements, Step, judged, parts_lost, table_exists
from fencehold.model.errors import ConfigurationError
from fencehold.ports.schema import Waits, unheard

T = TypeVar("T")


class PostgresSchema:
    def __init__(self, info: str, statements: Statements) -> None:
        self._info = info
        self._statements = statements

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        left_s = wire.fixed(limit_s)
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
        return await self._asked(self._missing, limit_s)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return await self._asked(self._judged, limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._asked(self._rights, limit_s)

    async def _asked(self, work: Callable[[wire.Connection], Coroutine[Any, Any, T]], limit_s: float) -> T:
        connection = await wire.connect(self._info, min(limit_s, wire.CONNECT_LIMIT_S), autocommit=True)
        try:
            with wire.lent(connection):
                return await wire.bounded(connection, work(connection), wire.fixed(limit_s))
        except psycopg.Error as error:
            raise faults.of_statement(error) from None

    async def _judged(self, connection: wire.Connection) -> ConfigurationError | None:
        if not (missing := await self._missing(connection)):
            return None
        applied = await self._applied(connection)
        there = await self._says(connection, "table_there")
        found = judged(self._statements, applied, there, missing, await self._is_foreign(connection))
        if not await self._missing(connection):
            return None  # another process made them between two of these statements
        if found is not None and found.code == "schema_missing":
            return await self._unmakeable(connection) or found
        return found

    async def _unmakeable(self, connection: wire.Connection) -> ConfigurationError | None:
        """Return why this role cannot make tables that do not exist; None if it can."""
        cursor = await connection.execute(self._statements["schema_rights"], {"table": self._statements.table})
        rights = await cursor.fetchone()
        if rights is None:
            return None if "." in self._statements.table else faults.no_usable_schema()
        schema, may_use, may_create = rights
        return None if may_use and may_create else faults.unmakeable(schema, self._statements.init_option)

    async def _rights(self, connection: wire.Connection) -> list[str]:
        cursor = await connection.execute(self._statements["rights_missing"])
        return [row[0] for row in await cursor.fetchall()]

    async def _applied(self, connection: wire.Connection) -> set[str]:
        if not await self._says(connection, "steps_there"):
            return set()
        cursor = await connection.execute(self._statements["steps_applied"], {"component": self._statements.table})
        return {row[0] for row in await cursor.fetchall()}

    def script(self) -> str:
        """Safe to repeat: a step that is recorded is left out."""
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
        component = self._statements.table
        await connection.execute(self._statements["lock_limit"], {"limit_ms": str(patience.wait_ms)})
        if await self._is_current(connection):  # the usual case: takes no lock, however many programs start at once
            return []
        await connection.execute(self._statements["steps_lock"])
        if not await self._says(connection, "steps_there"):
            await connection.execute(self._statements["steps_table"])
        applied = await self._applied(connection)
        due = self._statements.due(applied, await self._says(connection, "table_there"))
        if await self._is_foreign(connection):
            raise table_exists(self._statements, applied)
        for step in due:
            await self._step(connection, step, {"component": component, "step": step.name})
        if missing := await self._missing(connection):
            raise parts_lost(self._statements, missing)
        patience.ends()
        await connection.commit()
        return [step.name for step in due]

    async def _is_foreign(self, connection: wire.Connection) -> bool:
        """Whether a table with one of our names is somebody else's.

        Reads the record after the tables: if another process is making them, it has made both by then.
        """
        if "foreign" not in self._statements or not await self._says(connection, "foreign"):
            return False
        return not self._statements.recorded(await self._applied(connection))

    async def _is_current(self, connection: wire.Connection) -> bool:
        if not (await self._says(connection, "steps_there") and await self._says(connection, "table_there")):
            return False
        steps = {step.name for step in self._statements.steps}
        return steps <= await self._applied(connection) and not await self._missing(connection)

    async def _says(self, connection: wire.Connection, name: str) -> bool:
        cursor = await connection.execute(self._statements[name], {"table": self._statements.table})
        return bool((await cursor.fetchone() or (False,))[0])

    async def _step(self, connection: wire.Connection, step: Step, record: dict[str, Any]) -> None:
        await connection.execute(step.sql.encode())  # as bytes, psycopg runs a composed text unchanged
        await connection.execute(self._statements["steps_record"], record)

    async def _missing(self, connection: wire.Connection) -> list[str]:
        for name in self._statements.missing_asked:
            cursor = await connection.execute(self._statements[name])
            if rows := await cursor.fetchall():
                return [row[0] for row in rows]
        return []

    async def _in_use(self, connection: wire.Connection) -> str:
        """Return in words which sessions use the table; empty if none can be seen any more."""
        cursor = await connection.execute(self._statements["in_use"], {"table": self._statements.table})
        rows = await cursor.fetchall()
        await connection.rollback()
        sessions = [_session(*row) for row in rows]
        return f" by {' and '.join(sessions)}" if sessions else ""


def _session(pid: int, user: str, program: str, state: str, open_s: float | None) -> str:
    """Describe the session as far as known: a user may see neither state nor age of another role's transaction."""
    who = ", ".join(filter(None, (user, program, state)))
    since = f"; transaction open for {open_s:.1f} s" if open_s is not None else ""
    return f"session {pid} ({who}{since})"


def _once(recorded: str, sql: str) -> str:
    """Return `sql` as one statement of a script, which does nothing if `recorded` is true."""
    return f"DO $fencehold$ BEGIN IF NOT {recorded} THEN\n{sql}END IF; END $fencehold$;\n"
