"""Migrations on SQL Server: all steps in one transaction, under an application lock that ends with it."""

from __future__ import annotations

import re
import time
from typing import Any

from fencehold.backends.sql_text import Statements, table_exists
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.params import bound
from fencehold.backends.sqlserver.session import answer
from fencehold.model.errors import Unavailable

_BATCH_END = re.compile(r"^GO\s*\n", re.MULTILINE)
GO = "GO\n"
#: A shell goes on after a batch that failed. What was begun is undone then; the rest must not be run without it.
STOP = f"{GO}IF @@TRANCOUNT = 0 SET NOEXEC ON;\n{GO}"


class SqlServerSchema:
    def __init__(self, address: Address, statements: Statements) -> None:
        self._address = address
        self._statements = statements

    async def init(self, limit_s: float) -> list[str]:
        """On a connection of its own: its locks last until the last step, and end with the connection at the latest."""
        line = Line(self._address, name="fencehold-mssql-init")
        try:
            return await answer(line, lambda on: self._sorted(on, limit_s), limit_s)
        finally:
            line.leave()

    def script(self) -> str:
        """For sqlcmd and SSMS: all or nothing."""
        head = f"SET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\n{GO}BEGIN TRANSACTION;\n{GO}"
        steps = _BATCH_END.sub(STOP, self._statements.script(between=GO) + GO)
        return f"{head}{steps}COMMIT TRANSACTION;\n{GO}SET NOEXEC OFF;\n{GO}"

    def _sorted(self, line: Line, limit_s: float) -> list[str]:
        try:
            return self._apply(line, time.monotonic() + limit_s)
        except driver.Error as error:
            raise faults.of_init(error) from None

    def _apply(self, line: Line, ends_s: float) -> list[str]:
        batch.bounded(line, ends_s - time.monotonic())
        self._rows(line, "json_there")  # refused before anything is made
        batch.rows(line.connection, "BEGIN TRANSACTION")
        wait_ms = max(0, int((ends_s - time.monotonic()) * 1000))
        if self._rows(line, "steps_lock", wait_ms=wait_ms)[0][0] < 0:
            raise Unavailable("Another process is making the tables and has not finished.", code="busy")
        steps = self._steps(line, self._statements.table)
        batch.rows(line.connection, "COMMIT TRANSACTION")
        return steps

    def _steps(self, line: Line, component: str) -> list[str]:
        if not self._says(line, "steps_there"):
            self._rows(line, "steps_table")
        applied = {row[0] for row in self._rows(line, "steps_applied", component=component)}
        due = self._statements.due(applied, self._says(line, "table_there"))
        fresh = not self._statements.recorded(applied)
        if fresh and "foreign" in self._statements and self._says(line, "foreign"):
            raise table_exists(self._statements)
        for step in due:
            for text in _BATCH_END.split(step.sql):
                batch.rows(line.connection, text)
            self._rows(line, "steps_record", component=component, step=step.name)
        return [step.name for step in due]

    def _says(self, line: Line, name: str) -> bool:
        return bool(self._rows(line, name, table=self._statements.table)[0][0])

    def _rows(self, line: Line, name: str, **params: Any) -> batch.Rows:
        return batch.rows(line.connection, *bound(self._statements.named(name), params))
