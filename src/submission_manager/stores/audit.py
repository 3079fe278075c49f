"""An audit inside the database, for demos and tests: triggers log every grant, start and record, and refuse none.

The triggers slow every write, so no instance installs them: the demo and the tests do, on their own tables.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from fencehold.connect import scheme
from submission_manager.stores.statements import StoreStatements

CONNECT_LIMIT_S = 5
BUSY_LIMIT_S = 10.0
LOCK_LIMIT_S = 0.5
BATCH_END = re.compile(r"^GO\s*$", re.MULTILINE)

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Seen:
    """A logged grant, or an executor's write with the lease as it was at that moment. Ids grow in logging order."""

    id: int
    kind: str
    intent_id: str | None
    attempt_number: int | None
    epoch: int
    holder_id: str
    lease_epoch: int | None
    lease_holder: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class IntentLeft:
    intent_id: str
    status: str
    attempt_count: int
    max_attempts: int | None
    marker_epoch: int | None


@dataclass(frozen=True, slots=True)
class AttemptLeft:
    intent_id: str
    attempt_number: int


@dataclass(frozen=True, slots=True)
class Evidence:
    seen: list[Seen]
    intents: list[IntentLeft]
    attempts: list[AttemptLeft]


@dataclass(frozen=True, slots=True)
class Glance:
    """Counts of the present state; `started` and `recorded` count only the newest epoch."""

    holder_id: str | None
    epoch: int | None
    intents: int
    pending: int
    marked: int
    started: int
    recorded: int


class Audit:
    """Blocking: call it from one thread at a time. After an error the next call opens a new connection."""

    def __init__(self, url: str) -> None:
        dialect = {"sqlite": "sqlite", "mssql": "sqlserver"}.get(scheme(url), "postgres")
        self._is_sqlite = dialect == "sqlite"
        self._where = unquote(url.partition("://")[2].removeprefix("/")) if self._is_sqlite else url
        self._connect = {"sqlite": self._sqlite, "sqlserver": self._sqlserver}.get(dialect, self._postgres)
        self._statements = StoreStatements(dialect, f"fencehold.backends.{dialect}")
        self._kept: Any = None

    def install(self) -> None:
        """Install the triggers. The service's own tables must exist already."""
        text = self._statements["audit_install"]
        with self._connected() as connection:
            if self._is_sqlite:
                connection.executescript(text + ";")
                return
            for part in BATCH_END.split(text):
                connection.execute(part)

    def make_schema(self, name: str) -> None:
        """PostgreSQL only: create a separate schema in the given database. `name` must be a safe identifier."""
        with self._connected() as connection:
            connection.execute(f'CREATE SCHEMA "{name}"')

    def drop_schema(self, name: str) -> None:
        with self._connected() as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')

    def is_locked(self) -> bool:
        """SQLite: whether the write lock is held for longer than a write takes. Others have no such lock: False."""
        if not self._is_sqlite:
            return False
        with contextlib.closing(sqlite3.connect(self._where, timeout=LOCK_LIMIT_S, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
        return False

    def glance(self) -> Glance:
        with self._connected() as connection:
            return Glance(*self._rows(connection, "audit_glance")[0])

    def evidence(self) -> Evidence:
        with self._connected() as connection:
            return Evidence(
                [Seen(*row) for row in self._rows(connection, "audit_log")],
                [IntentLeft(*row) for row in self._rows(connection, "audit_intents")],
                [AttemptLeft(*row) for row in self._rows(connection, "audit_attempts")],
            )

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _rows(self, connection: Any, name: str) -> Rows:
        return [tuple(row) for row in connection.execute(self._statements[name]).fetchall()]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._kept is None:
            self._kept = self._connect()
        try:
            yield self._kept
        except BaseException:
            self.close()
            raise

    # Each connection is in autocommit mode and used by one thread at a time, though not always the same thread.

    def _sqlite(self) -> Any:
        return sqlite3.connect(self._where, timeout=BUSY_LIMIT_S, isolation_level=None, check_same_thread=False)

    def _postgres(self) -> Any:
        import psycopg

        return psycopg.connect(self._where, connect_timeout=CONNECT_LIMIT_S, autocommit=True, client_encoding="utf8")

    def _sqlserver(self) -> Any:
        from fencehold.backends.sqlserver import driver
        from fencehold.backends.sqlserver.address import Address

        return driver.connect(Address.of(self._where), limit_s=CONNECT_LIMIT_S)
