"""Limits that a role brings into every session, lifted where the session is ours."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from fencehold.backends.postgres import faults, wire
from fencehold.backends.sql.statements import Statements

#: Hears, on a connection that takes leases, why the server does not tell its timeline.
Unread = Callable[[str], None]


async def lifted(connection: wire.Connection, statements: Statements, unread: Unread | None = None) -> bool:
    """True if the session is this connection's alone: its limits are then those of `session_limits`.

    False behind a pooler, which hands each statement to any session of the server: nothing is changed there, because
    another client would meet it.
    """
    if await _pid(connection, statements, unread) != connection.info.backend_pid:
        return False
    await connection.execute(statements["session_limits"])
    return True


async def _pid(connection: wire.Connection, statements: Statements, unread: Unread | None) -> int:
    """Of the session that answers; for `unread` the same statement also tries to read the timeline."""
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
    return int(row[0])
