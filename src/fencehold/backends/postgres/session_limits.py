"""Lifts the time limits that a role brings into every session, if the server session belongs to this process alone."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from fencehold.backends.postgres import faults, wire
from fencehold.backends.sql.statements import Statements

#: Called with the reason why the server's timeline cannot be read, on a connection that takes leases.
Unread = Callable[[str], None]


async def lifted(connection: wire.Connection, statements: Statements, unread: Unread | None = None) -> bool:
    """Lift the role's time limits for this connection. Return False, and change nothing, behind a pooler.

    A pooler runs each statement in any session of the server, so another client would get the changed limits. `unread`
    is called with the reason if the server's timeline cannot be read.
    """
    if await _pid(connection, statements, unread) != connection.info.backend_pid:
        return False
    await connection.execute(statements["session_limits"])
    return True


async def _pid(connection: wire.Connection, statements: Statements, unread: Unread | None) -> int:
    """Return the process id of the server session that answers.

    If `unread` is given, the statement also tries to read the timeline, and `unread` is called with the reason if that
    fails.
    """
    if unread is not None:
        try:
            return await _first(connection, statements["probe_place"])
        except psycopg.Error as error:
            if not faults.is_unread(error):
                raise
            unread(faults.text_of(error))
    return await _first(connection, statements["probe"])


async def _first(connection: wire.Connection, statement: str) -> int:
    row = await (await connection.execute(statement)).fetchone()
    assert row is not None, "a probe always answers one row"
    pid, *_ = row
    return int(pid)
