"""Limits that a role brings into every session, lifted where the session is ours."""

from __future__ import annotations

from fencehold.backends.postgres import wire
from fencehold.backends.sql_text import Statements


async def lifted(connection: wire.Connection, statements: Statements) -> bool:
    """True if the session is this connection's alone: its limits are then those of `session_limits`.

    False behind a pooler, which hands each statement to any session of the server: nothing is changed there, because
    another client would meet it.
    """
    cursor = await connection.execute(statements["probe"])
    row = await cursor.fetchone()
    assert row is not None, "probe always answers one row"
    if row[0] != connection.info.backend_pid:
        return False
    await connection.execute(statements["session_limits"])
    return True
