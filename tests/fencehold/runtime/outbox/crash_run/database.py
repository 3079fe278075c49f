"""The database under a crash run: how it is prepared, audited, restarted and read. SQLite has no server to restart."""

import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import psycopg

import fencehold
from fencehold.model.errors import FenceholdError
from tests.fencehold.runtime.outbox.crash_run.referee import Change, Row
from tests.servers.postgres import PostgresServer, binaries_of

COLUMNS = "tracking_id, old, new, old_token, new_token, old_retries, new_retries, lease_until_s, at_s"
AUDIT_TABLE = """
CREATE TABLE crash_audit (
    seq {serial}, tracking_id text NOT NULL, old text NOT NULL, new text NOT NULL, old_token text, new_token text,
    old_retries int NOT NULL, new_retries int NOT NULL, lease_until_s {double}, at_s {double} NOT NULL)
"""
#: Also what leaves the status as it is: another token under the same status, and whatever happens to a finished event.
WORTH_A_ROW = """
OLD.status <> NEW.status OR coalesce(OLD.lock_token, '') <> coalesce(NEW.lock_token, '') OR OLD.status = 'COMPLETED'
"""
POSTGRES_AUDIT = f"""
{AUDIT_TABLE.format(serial="bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", double="float8")};
CREATE FUNCTION crash_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO crash_audit ({COLUMNS})
    VALUES (NEW.tracking_id, OLD.status, NEW.status, OLD.lock_token, NEW.lock_token, OLD.retry_count, NEW.retry_count,
            extract(epoch FROM OLD.locked_until), extract(epoch FROM clock_timestamp()));
    RETURN NULL;
END $$;
CREATE TRIGGER crash_audit AFTER UPDATE ON outbox FOR EACH ROW WHEN ({WORTH_A_ROW}) EXECUTE FUNCTION crash_audit();
"""
SQLITE_AUDIT = f"""
{AUDIT_TABLE.format(serial="INTEGER PRIMARY KEY AUTOINCREMENT", double="real")};
CREATE TRIGGER crash_audit AFTER UPDATE ON outbox WHEN {WORTH_A_ROW} BEGIN
    INSERT INTO crash_audit ({COLUMNS})
    VALUES (NEW.tracking_id, OLD.status, NEW.status, OLD.lock_token, NEW.lock_token, OLD.retry_count, NEW.retry_count,
            (julianday(OLD.locked_until) - 2440587.5) * 86400.0, (julianday('now') - 2440587.5) * 86400.0);
END;
"""
AUDIT_SQL = f"SELECT {COLUMNS} FROM crash_audit ORDER BY seq"
COUNTS_SQL = "SELECT status, count(*) FROM outbox GROUP BY status"
POSTGRES_ROWS_SQL = """
SELECT tracking_id::text, status, retry_count, lock_token, extract(epoch FROM processed_at - created_at)::float8
  FROM outbox
"""
SQLITE_ROWS_SQL = """
SELECT tracking_id, status, retry_count, lock_token, (julianday(processed_at) - julianday(created_at)) * 86400.0
  FROM outbox
"""
#: What a server may say when it is killed, stopped and started again; all else is told.
EXPECTED_IN_LOG = (
    "terminating",
    "connection to client lost",
    "starting up",
    "shutting down",
    "not yet accepting",
    "recovery",
    "shut down",
)


class Database(Protocol):
    url: str
    restarts: bool

    def counts(self) -> dict[str, int]: ...

    def changes(self) -> list[Change]: ...

    def rows(self) -> list[Row]: ...

    def restart(self, crash: bool) -> None: ...

    def complaints(self) -> Counter[str]: ...

    def close(self) -> None: ...


class PostgresDatabase:
    restarts = True

    def __init__(self) -> None:
        self._server = PostgresServer.of(binaries_of())
        self._server.start()
        self.url = self._server.dsn()
        prepare(self.url)
        self._query(POSTGRES_AUDIT)

    def counts(self) -> dict[str, int]:
        return dict(self._query(COUNTS_SQL))

    def changes(self) -> list[Change]:
        return [Change(*row) for row in self._query(AUDIT_SQL)]

    def rows(self) -> list[Row]:
        return [Row(*row) for row in self._query(POSTGRES_ROWS_SQL)]

    def restart(self, crash: bool) -> None:
        """kill -9 of the whole server and crash recovery, or a fast shutdown, and a start."""
        if crash:
            self._server.kill9()
        else:
            self._server.stop()
        self._server.start()

    def complaints(self) -> Counter[str]:
        """Errors in the server's log that a crash does not explain, without their times and numbers."""
        found: Counter[str] = Counter()
        for line in self._server.log.read_text(errors="replace").splitlines():
            for level in ("ERROR:", "FATAL:", "PANIC:"):
                said = line.partition(level)[2]
                if said and not any(word in said for word in EXPECTED_IN_LOG):
                    found[f"{level}{said}"] += 1
        return found

    def close(self) -> None:
        self._server.close()

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=2) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


class SqliteDatabase:
    restarts = False

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fencehold-crash-"))
        self._path = self._folder / "outbox.db"
        self.url = f"sqlite:///{self._path}"
        prepare(self.url)
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            connection.executescript(SQLITE_AUDIT)

    def counts(self) -> dict[str, int]:
        return dict(self._query(COUNTS_SQL))

    def changes(self) -> list[Change]:
        return [Change(*row) for row in self._query(AUDIT_SQL)]

    def rows(self) -> list[Row]:
        return [Row(*row) for row in self._query(SQLITE_ROWS_SQL)]

    def restart(self, crash: bool) -> None:
        raise AssertionError("SQLite has no server")

    def complaints(self) -> Counter[str]:
        [(health,)] = self._query("PRAGMA integrity_check")
        return Counter() if health == "ok" else Counter({f"integrity_check: {health}": 1})

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=5)) as connection:
            return connection.execute(sql).fetchall()


DATABASES: dict[str, type[PostgresDatabase] | type[SqliteDatabase]] = {
    "postgres": PostgresDatabase,
    "sqlite": SqliteDatabase,
}


def prepare(url: str) -> None:
    async def init() -> None:
        async with fencehold.connect(url) as store:
            store.outbox()
            await store.init()

    asyncio.run(init())


async def counts(database: Database) -> dict[str, int] | None:
    """By status; None while the database does not answer."""
    try:
        return await asyncio.to_thread(database.counts)
    except (psycopg.Error, sqlite3.Error, FenceholdError):
        return None
