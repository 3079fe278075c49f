"""A pool of connections for statements of a service's own, each of which is committed by itself.

psycopg's own pool is not used: a wait for psycopg has no end if the server is dead, but here each call ends within its
limit.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import psycopg

from fencehold.backends.postgres import faults, session_limits, wire
from fencehold.backends.postgres.commits import PROMISED, PROMISED_BEFORE, Commits
from fencehold.backends.sql.own_rows import by_name
from fencehold.backends.sql.own_tables import OwnStatements, busy, closed
from fencehold.ports.own_tables import Row, Statement
from fencehold.ports.time_limit import fixed


class Pool:
    """Up to `size` connections, each used for one statement at a time.

    A connection that broke, or whose server takes no writes any more, is dropped. If that connection had been kept from
    an earlier statement, a statement that may be repeated runs again on another connection.
    """

    def __init__(self, info: str, statements: OwnStatements, size: int, commits: Commits) -> None:
        self._info = info
        self._commits = commits
        self._statements = statements
        self._turns = asyncio.Semaphore(size)
        self._idle: list[wire.Connection] = []
        self._is_closed = False

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        left_s = fixed(limit_s)
        await self._turn(limit_s)
        try:
            while True:
                connection, was_kept = await self._checkout(left_s())
                try:
                    found = await wire.bounded(connection, self._fetch(connection, statement), left_s)
                except psycopg.Error as error:
                    # A server that became a standby keeps its connections open, but the primary is elsewhere now.
                    is_fit = not (faults.is_connection_lost(error) or faults.is_elsewhere(error))
                    is_stale = was_kept and not is_fit and left_s() > 0
                    self._checkin(connection, is_fit=is_fit)
                    if not (is_stale and statement.may_repeat):
                        raise faults.of_statement(error) from None
                except BaseException:
                    wire.discard(connection)
                    raise
                else:
                    self._checkin(connection, is_fit=True)
                    return found
        finally:
            self._turns.release()

    async def _turn(self, limit_s: float) -> None:
        if not self._turns.locked():
            await self._turns.acquire()  # returns at once: setting a time limit would cost more
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._turns.acquire()
        except TimeoutError:
            raise busy() from None

    async def _checkout(self, limit_s: float) -> tuple[wire.Connection, bool]:
        if self._is_closed:
            raise closed()
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection, True
        left_s = fixed(limit_s)
        connection = await wire.connect(self._info, min(limit_s, wire.CONNECT_LIMIT_S), autocommit=True)
        try:
            is_own = await wire.bounded(connection, self._settled(connection), left_s)
        except psycopg.Error as error:
            wire.discard(connection)
            raise faults.of_connect(error) from None
        except BaseException:
            wire.discard(connection)
            raise
        # A pooler sends each statement to any server session: prepared statements would not be found there.
        connection.prepare_threshold = 0 if is_own else None
        return connection, False

    async def _fetch(self, connection: wire.Connection, statement: Statement) -> list[Row]:
        async def fetch() -> list[Row]:
            cursor = connection.cursor(binary=True)
            await cursor.execute(self._statements[statement.name], statement.params or None)
            return await rows_of(cursor)

        is_pooled = connection.prepare_threshold is None
        return await self._commits.run(connection, self._statements, self._kind(statement), is_pooled, fetch)

    def _kind(self, statement: Statement) -> str:
        """Return the name that tells `Commits` which rule the statement falls under.

        For a promise (an answer that the service relies on) PROMISED, or PROMISED_BEFORE if the statement only reads;
        else the statement's own name, for which there is no rule.
        """
        if not statement.is_promise:
            return statement.name
        return PROMISED_BEFORE if self._statements.reads(statement.name) else PROMISED

    async def _settled(self, connection: wire.Connection) -> bool:
        """Set up a new connection. Return True if its server session is ours alone, False behind a pooler."""
        is_own = await session_limits.lifted(connection, self._statements)
        await self._commits.settle(connection, self._statements, not is_own)
        return is_own

    def _checkin(self, connection: wire.Connection, *, is_fit: bool) -> None:
        if is_fit and not connection.closed and not self._is_closed:
            self._idle.append(connection)
        else:
            wire.discard(connection)

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            wire.discard(self._idle.pop())


async def rows_of(cursor: psycopg.AsyncCursor[tuple[object, ...]]) -> list[Row]:
    """Return all rows of the cursor as dicts; empty if the statement returns none.

    Times are in UTC: they are converted only if the session is in another time zone.
    """
    if cursor.description is None:
        return []
    is_utc = cursor.connection.info.timezone is dt.UTC
    return by_name(cursor.description, await cursor.fetchall(), None if is_utc else in_utc)


def in_utc(at: Any) -> Any:
    return at.astimezone(dt.UTC) if isinstance(at, dt.datetime) else at  # the write is committed: no error for a number
