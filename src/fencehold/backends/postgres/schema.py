"""Migrations on PostgreSQL: all steps in one transaction, under an advisory lock that ends with it."""

from __future__ import annotations

from typing import Any

import psycopg

from fencehold.backends.postgres import faults, wire
from fencehold.backends.sql_text import Statements, Step, table_exists


class PostgresSchema:
    def __init__(self, info: str, statements: Statements) -> None:
        self._info = info
        self._statements = statements

    async def init(self, limit_s: float) -> list[str]:
        left_s = wire.fixed(limit_s)
        connection = await wire.connect(self._info, min(limit_s, wire.CONNECT_LIMIT_S), autocommit=False)
        try:
            return await wire.bounded(connection, self._apply(connection), left_s)
        except psycopg.Error as error:
            raise faults.of_init(error) from None
        finally:
            wire.discard(connection)

    def script(self) -> str:
        return f"BEGIN;\n{self._statements.script()}\nCOMMIT;\n"

    async def _apply(self, connection: wire.Connection) -> list[str]:
        component = self._statements.table
        await connection.execute(self._statements["steps_lock"])
        if not await self._says(connection, "steps_there"):
            await connection.execute(self._statements["steps_table"])
        cursor = await connection.execute(self._statements["steps_applied"], {"component": component})
        applied = {row[0] for row in await cursor.fetchall()}
        due = self._statements.due(applied, await self._says(connection, "table_there"))
        fresh = not self._statements.recorded(applied)
        if fresh and "foreign" in self._statements and await self._says(connection, "foreign"):
            raise table_exists(self._statements)
        for step in due:
            await self._step(connection, step, {"component": component, "step": step.name})
        await connection.commit()
        return [step.name for step in due]

    async def _says(self, connection: wire.Connection, name: str) -> bool:
        cursor = await connection.execute(self._statements[name], {"table": self._statements.table})
        return bool((await cursor.fetchone() or (False,))[0])

    async def _step(self, connection: wire.Connection, step: Step, record: dict[str, Any]) -> None:
        await connection.execute(step.sql.encode())  # bytes: a composed text, run as it stands
        await connection.execute(self._statements["steps_record"], record)
