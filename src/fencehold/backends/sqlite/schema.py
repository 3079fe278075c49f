"""Migrations on SQLite: all steps in one write transaction."""

from __future__ import annotations

import re
import sqlite3
import time

from fencehold.backends.sql.statements import Statements, judged, parts_lost, table_exists
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.session import Session
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.schema import Waits, unheard

ASK_AGAIN_S = 0.01
SAY_EVERY_S = 4.0
_STATEMENT_END = re.compile(r";[ \t]*\n(?=\s*(?:--|CREATE|$))")


class SqliteSchema:
    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements
        self._parts = {step.name: _STATEMENT_END.split(step.sql) for step in statements.steps}

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Wait for SQLite's write lock until the limit, because nobody queues behind this wait.

        Raises Unavailable (busy) if it was not free by then, ConfigurationError (read_only) if the file cannot be made.
        """
        ends_s = time.monotonic() + limit_s
        while True:
            left_s = max(0.0, ends_s - time.monotonic())
            try:
                steps = await self._session.write(self._apply, min(SAY_EVERY_S, left_s), mode="rwc")
                break
            except Unavailable as error:
                if error.code != "busy" or left_s <= SAY_EVERY_S:
                    raise
                waits(f"{self._session.path} is locked by another process; trying again")
            except ConfigurationError as error:
                if error.code != "schema_missing":
                    raise
                raise faults.unmade(self._session.path) from error
        await self._session.call(lambda: self._use_wal(limit_s), limit_s)
        return steps

    async def missing(self, limit_s: float) -> list[str]:
        return await self._session.read(self._missing, limit_s)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return await self._session.read(self._judged, limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return []  # a user that may write the file may do everything

    def script(self) -> str:
        """For a new file: SQLite's shell has no conditions. `fencehold init` upgrades a file that has tables."""
        return f"PRAGMA journal_mode = WAL;\nBEGIN IMMEDIATE;\n{self._statements.script()}\nCOMMIT;\n"

    def _use_wal(self, limit_s: float) -> None:
        # In WAL mode readers never delay a renewal. The file keeps the mode: it is set once, after the tables are made.
        # While another process sets it, SQLite refuses at once, whatever the busy timeout: so retry until the limit.
        ends_s = time.monotonic() + limit_s
        connection = self._session.connection(limit_s, mode="rwc")
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= ends_s:
                    raise
                time.sleep(ASK_AGAIN_S)

    def _apply(self, connection: sqlite3.Connection) -> list[str]:
        record = {"component": self._statements.table}
        if not self._says(connection, "steps_there"):
            connection.execute(self._statements["steps_table"])
        applied = self._applied(connection)
        due = self._statements.due(applied, self._says(connection, "table_there"))
        if self._is_foreign(connection):
            raise table_exists(self._statements, applied)
        for step in due:
            for statement in self._parts[step.name]:
                connection.execute(statement)
            connection.execute(self._statements["steps_record"], {**record, "step": step.name})
        if missing := self._missing(connection):
            raise parts_lost(self._statements, missing)
        return [step.name for step in due]

    def _judged(self, connection: sqlite3.Connection) -> ConfigurationError | None:
        applied = self._applied(connection)
        there, missing = self._says(connection, "table_there"), self._missing(connection)
        is_foreign = bool(missing) and self._is_foreign(connection)
        fault = judged(self._statements, applied, there, missing, is_foreign, where=f" in {self._session.path}")
        return faults.asking_first(fault, self._session.path) if fault is not None else None

    def _is_foreign(self, connection: sqlite3.Connection) -> bool:
        """Whether a table with one of our names is somebody else's.

        Reads the record after the tables: if another process is making them, it has made both by then.
        """
        if "foreign" not in self._statements or not self._says(connection, "foreign"):
            return False
        return not self._statements.recorded(self._applied(connection))

    def _applied(self, connection: sqlite3.Connection) -> set[str]:
        if not self._says(connection, "steps_there"):
            return set()
        rows = connection.execute(self._statements["steps_applied"], {"component": self._statements.table})
        return {row[0] for row in rows}

    def _missing(self, connection: sqlite3.Connection) -> list[str]:
        for name in self._statements.missing_asked:
            if rows := connection.execute(self._statements[name]).fetchall():
                return [row[0] for row in rows]
        return []

    def _says(self, connection: sqlite3.Connection, name: str) -> bool:
        return bool(connection.execute(self._statements[name], {"table": self._statements.table}).fetchone()[0])
