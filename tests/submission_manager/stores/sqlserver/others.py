"""Somebody else's session on SQL Server: a transaction that stays open while the test goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fencehold.backends.sqlserver.params import bound, own
from submission_manager.model.intents import NewIntent
from submission_manager.stores import sqlserver
from tests.servers.sqlserver import open_connection
from tests.submission_manager.stores.scene import Scene, contract, statements

Run = Callable[..., Any]
SESSIONS = "SELECT session_id FROM sys.dm_exec_sessions WHERE database_id = DB_ID() AND session_id <> @@SPID"
READS_WAIT = "SELECT 1 - CAST(is_read_committed_snapshot_on AS int) FROM sys.databases WHERE database_id = DB_ID()"


def statement(at: Scene, name: str) -> str:
    return statements(at.url).named(name)


def submission(*ids: str) -> dict[str, Any]:
    """The parameters of the store's own statement."""
    return own(sqlserver.submission([NewIntent(intent_id, b"{}", contract()) for intent_id in ids]))


def execute(connection: Any, text: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """All of it: an error of a later statement comes with its own result."""
    sql, values = bound(text, params or {})
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(sql, *values)
        found: list[tuple[Any, ...]] = []
        while True:
            if cursor.description:
                found = [tuple(row) for row in cursor.fetchall()]
            if not cursor.nextset():
                return found


@contextlib.asynccontextmanager
async def transaction(at: Scene) -> AsyncIterator[Run]:
    """Commits at the end of the block, if nothing went wrong in it."""
    connection = await asyncio.to_thread(open_connection, at.url)

    async def run(text: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(execute, connection, text, params)

    try:
        await run("BEGIN TRANSACTION")
        yield run
        await run("COMMIT TRANSACTION")
    finally:
        await asyncio.to_thread(connection.close)


def kill_others(at: Scene) -> None:
    """Every other session in this database ends."""
    with contextlib.closing(open_connection(at.url)) as connection:
        for (session,) in execute(connection, SESSIONS):
            execute(connection, f"KILL {session}")


def reads_wait(at: Scene) -> bool:
    """Without row versions who reads waits for whoever writes."""
    return bool(at.sql(READS_WAIT)[0][0])


async def locks_are_taken(at: Scene) -> bool:
    """Not every server that speaks T-SQL does what a hint says."""
    async with transaction(at) as run:
        await run("SELECT intent_id FROM submission_intents WITH (UPDLOCK) WHERE intent_id = 'a'")
        try:
            await asyncio.to_thread(
                at.sql, "SET LOCK_TIMEOUT 300; UPDATE submission_intents SET updated_at = updated_at"
            )
        except Exception:
            return True
    return False
