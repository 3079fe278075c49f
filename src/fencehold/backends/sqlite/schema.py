"""Migrations on SQLite: all steps in one write transaction."""

from __future__ import annotations

import re
import sqlite3
import time

from fencehold.backends.sql_text import Statements, table_exists
from fencehold.backends.sqlite.session import Session

ASK_AGAIN_S = 0.01
_STATEMENT_END = re.compile(r";[ \t]*\n(?=\s*(?:--|CREATE|$))")


class SqliteSchema:
    def __init__(self, session: Session, statements: Statements) -> None:
        self._session = session
        self._statements = statements

    async def init(self, limit_s: float) -> list[str]:
        steps = await self._session.write(self._apply, limit_s, mode="rwc")
        await self._session.call(lambda: self._use_wal(limit_s), limit_s)
        return steps

    def script(self) -> str:
        return f"PRAGMA journal_mode = WAL;\nBEGIN IMMEDIATE;\n{self._statements.script()}\nCOMMIT;\n"

    def _use_wal(self, limit_s: float) -> None:
        # Readers then never hold up a renewal. Kept in the file, so asked for once, and not before it is ours.
        # Who asks while another does is refused at once, whatever the busy timeout: so ask again until the limit.
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
        applied = {row[0] for row in connection.execute(self._statements["steps_applied"], record)}
        due = self._statements.due(applied, self._says(connection, "table_there"))
        fresh = not self._statements.recorded(applied)
        if fresh and "foreign" in self._statements and self._says(connection, "foreign"):
            raise table_exists(self._statements)
        for step in due:
            for statement in _STATEMENT_END.split(step.sql):
                connection.execute(statement)
            connection.execute(self._statements["steps_record"], {**record, "step": step.name})
        return [step.name for step in due]

    def _says(self, connection: sqlite3.Connection, name: str) -> bool:
        return bool(connection.execute(self._statements[name], {"table": self._statements.table}).fetchone()[0])
