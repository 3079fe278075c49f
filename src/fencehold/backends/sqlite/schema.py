"""Migrations on SQLite: all steps run in one write transaction."""

from __future__ import annotations

import re
import sqlite3
import time
from typing import Any, TypeVar

from fencehold.backends.sql.callers.connections import Run
from fencehold.backends.sql.migrations import Migrations, Steps
from fencehold.backends.sql.statements import Statements, Step
from fencehold.backends.sql.steps import driven
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.session import Session
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.schema import Waits, unheard

ASK_AGAIN_S = 0.01
SAY_EVERY_S = 4.0
T = TypeVar("T")
_STATEMENT_END = re.compile(r";[ \t]*\n(?=\s*(?:--|CREATE|$))")


class SqliteSchema:
    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements
        self._tables = Migrations(statements)
        self._parts = {step.name: _STATEMENT_END.split(step.sql) for step in statements.steps}

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        """Make or upgrade the tables, and return the names of the migrations that were run.

        It waits for SQLite's write lock until the limit, because no other session queues behind this wait. Raises
        Unavailable (busy) if the lock was not free by then, ConfigurationError (read_only) if the file cannot be made.
        """
        ends_s = time.monotonic() + limit_s

        def make(connection: sqlite3.Connection) -> list[str]:
            return self._driven(connection, self._tables.made())

        while True:
            left_s = max(0.0, ends_s - time.monotonic())
            try:
                steps = await self._session.write(make, min(SAY_EVERY_S, left_s), mode="rwc")
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
        return await self._session.read(lambda connection: self._driven(connection, self._tables.missing()), limit_s)

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return await self._session.read(self._judged, limit_s)

    async def rights_missing(self, limit_s: float) -> list[str]:
        return []  # a user that may write the file may do everything

    def script(self) -> str:
        """Return the SQL that makes the tables in a new file.

        It cannot be run again, because SQLite's shell has no conditions; `fencehold init` upgrades a file that has
        tables.
        """
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

    def _judged(self, connection: sqlite3.Connection) -> ConfigurationError | None:
        fault = self._driven(connection, self._tables.judged(where=f" in {self._session.path}"))
        return faults.asking_first(fault, self._session.path) if fault is not None else None

    def _driven(self, connection: sqlite3.Connection, steps: Steps[T]) -> T:
        return driven(steps, lambda asked: self._answer(connection, asked))

    def _answer(self, connection: sqlite3.Connection, asked: Run | Step) -> list[tuple[Any, ...]]:
        if isinstance(asked, Run):
            return connection.execute(self._statements[asked.name], asked.params).fetchall()
        for statement in self._parts[asked.name]:
            connection.execute(statement)
        return []
