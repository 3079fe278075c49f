"""Migrations on SQL Server: all steps in one transaction, under an application lock that ends with the transaction.

A migration waits only a short time for a lock, because later requests for the table queue behind it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fencehold.backends.sql.callers.connections import Run
from fencehold.backends.sql.lock_patience import LOCK_WAIT_S_MAX, LockPatience
from fencehold.backends.sql.migrations import Migrations, Steps
from fencehold.backends.sql.statements import Statements, Step
from fencehold.backends.sql.steps import driven
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.params import bound
from fencehold.backends.sqlserver.session import answer
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.schema import Waits, unheard

_BATCH_END = re.compile(r"^GO\s*\n", re.MULTILINE)
GO = "GO\n"
#: A shell continues after a failed batch, whose transaction was undone: this keeps it from running the rest.
STOP = f"{GO}IF @@TRANCOUNT = 0 SET NOEXEC ON;\n{GO}"

T = TypeVar("T")


class SqlServerSchema:
    def __init__(self, address: Address, statements: Statements) -> None:
        self._address = address
        self._statements = statements
        self._tables = Migrations(statements)

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Create or upgrade the tables and return the steps just applied.

        Uses a connection of its own. Its locks last until the last step, and end at the latest with the connection.
        """
        return await self._asked(lambda line: self._tried(line, limit_s, waits), limit_s)

    async def missing(self, limit_s: float) -> list[str]:
        return await self._asked(lambda line: self._driven(line, self._tables.missing()), limit_s)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return await self._asked(lambda line: self._driven(line, self._tables.judged()), limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return await self._asked(lambda line: [right for (right,) in self._rows(line, "rights_missing")], limit_s)

    async def _asked(self, work: Callable[[Line], T], limit_s: float) -> T:
        line = Line(self._address, name="fencehold-mssql-init")
        try:
            return await answer(line, work, limit_s)
        finally:
            line.leave()

    def script(self) -> str:
        """Return the SQL for sqlcmd and SSMS, which applies all steps or none.

        It is safe to run again: a step that the database has recorded as applied is left out.
        """
        limit = f"SET LOCK_TIMEOUT {LOCK_WAIT_S_MAX * 1000:.0f};\n"
        head = f"SET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\n{limit}{GO}BEGIN TRANSACTION;\n{GO}"
        steps = _BATCH_END.sub(STOP, self._statements.script(between=GO, once=_once) + GO)
        return f"{head}{steps}COMMIT TRANSACTION;\n{GO}SET NOEXEC OFF;\n{GO}"

    def _tried(self, line: Line, limit_s: float, waits: Waits) -> list[str]:
        ends_s = time.monotonic() + limit_s
        patience = LockPatience(f"The table {self._statements.table}", waits, lambda: ends_s - time.monotonic())
        while True:
            try:
                return self._apply(line, ends_s, patience.wait_ms)
            except driver.Error as error:
                if not faults.is_lock_timeout(error):
                    raise faults.of_init(error, self._statements.init_option) from None
                batch.rows(line.connection, *bound(self._statements.named("poison"), {}))
                time.sleep(patience.refused(" by another session"))

    def _apply(self, line: Line, ends_s: float, lock_wait_ms: int) -> list[str]:
        batch.bounded(line, ends_s - time.monotonic())
        self._rows(line, "json_there")  # raises here, before anything is made
        batch.rows(line.connection, f"SET LOCK_TIMEOUT {lock_wait_ms:d}; BEGIN TRANSACTION")
        line.lock_timeout_ms = lock_wait_ms
        wait_ms = max(0, int((ends_s - time.monotonic()) * 1000))
        [(locked,)] = self._rows(line, "steps_lock", wait_ms=wait_ms)
        if locked < 0:
            raise Unavailable("Another process is making the tables and has not finished.", code="busy")
        steps = self._driven(line, self._tables.made())
        batch.rows(line.connection, "COMMIT TRANSACTION")
        return steps

    def _driven(self, line: Line, steps: Steps[T]) -> T:
        return driven(steps, lambda asked: self._answer(line, asked))

    def _answer(self, line: Line, asked: Run | Step) -> batch.Rows:
        if isinstance(asked, Run):
            return self._rows(line, asked.name, **asked.params)
        for text in _BATCH_END.split(asked.sql):
            batch.rows(line.connection, text)
        return []

    def _rows(self, line: Line, name: str, **params: Any) -> batch.Rows:
        return batch.rows(line.connection, *bound(self._statements.named(name), params))


def _once(recorded: str, sql: str) -> str:
    """Return `sql` so that its batches run only if the SQL condition `recorded` is false.

    Each batch is passed as a text to sp_executesql, so that the server does not compile a batch that it does not run.
    """
    quoted = (text.strip().replace("'", "''") for text in _BATCH_END.split(sql))
    return GO.join(f"IF NOT {recorded}\nEXEC sp_executesql N'{text}\n';\n" for text in quoted)
