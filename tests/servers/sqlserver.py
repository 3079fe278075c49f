"""The SQL Server named in FENCEHOLD_TEST_MSSQL_URL: used as it is, in databases of the run's own.

No registry brings one, so a run without it is no failure, even under CI; its last lines say that it was not run.

    FENCEHOLD_TEST_MSSQL_URL        mssql://login:password@host:1433/master; the login may CREATE DATABASE
    FENCEHOLD_TEST_MSSQL_SNAPSHOT   on: the databases have READ_COMMITTED_SNAPSHOT
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from fencehold.backends.sqlserver import driver
from fencehold.backends.sqlserver.address import Address

VARIABLE = "FENCEHOLD_TEST_MSSQL_URL"
SNAPSHOT_VARIABLE = "FENCEHOLD_TEST_MSSQL_SNAPSHOT"
WITH_SNAPSHOT = os.environ.get(SNAPSHOT_VARIABLE, "").lower() in {"1", "on", "true", "yes"}
LOGIN_LIMIT_S = 15
QUERY_LIMIT_S = 30
LOCK_LIMIT_MS = 3000
THROW_OUT_LIMIT_S = 3.0

FOREIGN_KEYS = """
SELECT SCHEMA_NAME(t.schema_id), t.name, k.name
  FROM sys.foreign_keys k JOIN sys.tables t ON t.object_id = k.parent_object_id"""
OBJECTS = """
SELECT SCHEMA_NAME(schema_id), name, RTRIM(type) FROM sys.objects
 WHERE type IN ('V', 'P', 'U', 'SO', 'FN') AND is_ms_shipped = 0"""
SCHEMAS = """
SELECT name FROM sys.schemas
 WHERE name NOT IN ('dbo', 'guest', 'sys', 'INFORMATION_SCHEMA') AND name NOT LIKE 'db[_]%'"""
SESSIONS = "SELECT session_id FROM sys.dm_exec_sessions WHERE database_id = DB_ID(?) AND session_id > 50"
#: What a test can leave behind, in the order in which it can be dropped.
FIRST_KINDS = {"V": "VIEW", "P": "PROCEDURE", "U": "TABLE"}
LAST_KINDS = {"SO": "SEQUENCE", "FN": "FUNCTION"}


class SqlServer:
    """Gives databases that nobody else uses and drops them at the end."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._own = ""
        self._made: list[str] = []
        with self.connected() as connection:
            rows = connection.cursor().execute("SELECT @@VERSION").fetchall()
        self.version = str(rows[0][0]).strip().splitlines()[0]

    def url(self, database: str | None = None) -> str:
        """The given address, with another database in it."""
        return self._url if database is None else urlsplit(self._url)._replace(path=f"/{database}").geturl()

    def fresh_database(self) -> str:
        """The address of an empty one."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        with self.connected() as connection:
            connection.cursor().execute(f"CREATE DATABASE {name}")
            self._made.append(name)
            if WITH_SNAPSHOT:
                connection.cursor().execute(f"ALTER DATABASE {name} SET READ_COMMITTED_SNAPSHOT ON")
        return self.url(name)

    def database(self) -> str:
        """The address of the session's own, as earlier tests left it."""
        self._own = self._own or self.fresh_database()
        return self._own

    def emptied(self) -> str:
        """The same with nothing left in it; a new one where something there is still locked."""
        url = self.database()
        try:
            with self.connected(url) as connection:
                connection.cursor().execute(f"SET LOCK_TIMEOUT {LOCK_LIMIT_MS}")
                drop_all(connection)
        except driver.Error:
            self._own = url = self.fresh_database()
        return url

    def close(self) -> None:
        """Drops what was made, whoever is still connected to it."""
        while self._made:
            name = self._made.pop()
            with contextlib.suppress(Exception), self.connected() as connection:
                throw_out(connection, name)
                connection.cursor().execute(f"DROP DATABASE {name}")

    @contextlib.contextmanager
    def connected(self, url: str | None = None) -> Iterator[Any]:
        connection = open_connection(url or self._url)
        try:
            yield connection
        finally:
            connection.close()


def throw_out(connection: Any, database: str) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"ALTER DATABASE {database} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        return
    except driver.Error:
        pass  # not every server knows it
    give_up_at = time.monotonic() + THROW_OUT_LIMIT_S
    while (there := cursor.execute(SESSIONS, database).fetchall()) and time.monotonic() < give_up_at:
        for (session,) in there:
            with contextlib.suppress(Exception):
                cursor.execute(f"KILL {session}")
        time.sleep(0.05)


def drop_all(connection: Any) -> None:
    """In two rounds: a server may count the sequence behind an IDENTITY column, which goes with its table."""
    cursor = connection.cursor()
    keys = cursor.execute(FOREIGN_KEYS).fetchall()
    run_all(cursor, [f"ALTER TABLE [{schema}].[{table}] DROP CONSTRAINT [{key}]" for schema, table, key in keys])
    for kinds in (FIRST_KINDS, LAST_KINDS):
        there = cursor.execute(OBJECTS).fetchall()
        drops = [
            f"DROP {word} [{schema}].[{name}]"
            for kind, word in kinds.items()
            for schema, name, its_kind in there
            if its_kind == kind
        ]
        run_all(cursor, drops)
    run_all(cursor, [f"DROP SCHEMA [{name}]" for (name,) in cursor.execute(SCHEMAS).fetchall()])


def run_all(cursor: Any, statements: Sequence[str]) -> None:
    if statements:
        cursor.execute("; ".join(statements))


def open_connection(url: str) -> driver.Connection:
    """A connection of the tests' own, in autocommit."""
    connection = driver.connect(Address.of(url), limit_s=LOGIN_LIMIT_S)
    connection.timeout = QUERY_LIMIT_S
    return connection
