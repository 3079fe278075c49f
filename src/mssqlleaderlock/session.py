"""The lock's own connection. It is never used again after an error, and every call on it has a time limit.

The session gets a mark, so that each statement can check that it runs in the right session, and it is probed for
whether it still holds the lock.

An application lock has no expiry and belongs to the server's session. So the session must end with the connection: the
driver's pool, which keeps sessions for later, is refused.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import nullcontext
from typing import Any

from fencehold.backends.sql.statements import LEASES, Statements
from fencehold.backends.sqlserver import batch, driver
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.line import Line
from fencehold.backends.sqlserver.session import answer
from fencehold.model.election.lock_errors import LockError, PoolerError
from mssqlleaderlock import sockets

SQL = Statements("mssqlleaderlock", LEASES.default_table)

#: The answer of sp_getapplock when another session holds the lock.
REFUSED = -1

POOLED = (
    "the driver's connection pool is on: a closed connection's session, and the lock with it, would live on in there. "
    "Call mssql_python.pooling(enabled=False) before the first connection, or use store.leader()."
)
ANOTHER_SESSION = (
    "another server session answers than the one that was opened for the lock, or it holds the lock already: a pooler "
    "sits in between, or the driver reconnected by itself."
)

Params = dict[str, Any]


class Connection:
    """One server session and the thread that uses it. It is never used again after an error, a timeout or a cancel."""

    def __init__(self, address: Address) -> None:
        self._port = address.port
        self._line = Line(address, name="mssqlleaderlock")
        self._is_closed = False
        self.wire: sockets.Wire | None = None

    async def row(self, sql: str, params: Params, limit_s: float) -> tuple[Any, ...]:
        """Run a batch and return its one row."""
        row, *_ = await answer(self._line, lambda line: batch.run(line, sql, params, limit_s), limit_s)
        return row

    async def marked(self, token: str, limit_s: float) -> int:
        """Connect, mark the session as ours and find its socket. Return the server's number for the session."""

        def mark(line: Line) -> batch.Rows:
            sql = SQL.named("mark")
            rows, self.wire = sockets.found(
                self._port, lambda padding: batch.run(line, sql, {"token": token, "padding": padding}, limit_s)
            )
            if self._is_closed and self.wire is not None:
                self.wire.cut()  # closed meanwhile
            return rows

        [(session_id, _)] = await answer(self._line, mark, limit_s)
        return int(session_id)

    def close(self) -> None:
        """Close the connection.

        If its socket is known, the server sees the end at once, else when the thread's present call has ended.
        """
        self._is_closed = True
        if self.wire is not None:
            self.wire.cut()
        self._line.leave()


class SqlServerSession:
    """The connection that takes one lock. `session_id` is the server's number for its session."""

    expires = True
    birth = None  # ending a session that was left behind needs a right that applications do not have

    def __init__(self, address: Address, resource: str) -> None:
        self._address = address
        self._connection = Connection(address)
        self._params: Params = {"resource": resource, "token": secrets.token_hex(8)}
        self._is_spent = False

    @property
    def session_id(self) -> int:
        return int(self._params["session"])

    async def prepare(self, limit_s: float) -> None:
        self._params["session"] = await self._connection.marked(self._params["token"], limit_s)

    async def try_lock(self, limit_s: float) -> bool:
        if self._is_spent:
            await self._begin_anew(limit_s)
        mine, got, is_held = await self.row(SQL.named("lock"), self._params, limit_s)
        if not mine:
            raise LockError(ANOTHER_SESSION)
        if got < 0 and not is_held:
            raise LockError(f"sp_getapplock answered {got}")
        # This is not SQL Server's answer to a refusal. A compatible server that gives it may leave something of each
        # refused try in the session, and fail later: so the next try uses a new session.
        self._is_spent = got < REFUSED
        return bool(got >= 0)

    async def _begin_anew(self, limit_s: float) -> None:
        self._connection.close()
        self._connection = Connection(self._address)
        await self.prepare(limit_s)
        self._is_spent = False

    async def probe(self, limit_s: float) -> bool:
        mine, held = await self.row(SQL.named("probe"), self._params, limit_s)
        if not mine:
            raise LockError(ANOTHER_SESSION)
        return bool(held)

    async def unlock(self, limit_s: float) -> bool:
        answered, *_ = await self.row(SQL.named("unlock"), self._params, limit_s)
        return bool(answered >= 0)

    async def evict(self, born: Any, limit_s: float) -> bool:
        return False

    async def rest(self, timeout_s: float) -> None:
        await self.wait_for_news(timeout_s, asyncio.Event())

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        """Wait for `stop`, or at most for the timeout. SQL Server cannot notify that the lock is free.

        Also returns when the connection ends, if its socket is known.
        """
        wire = self._connection.wire
        with wire.watched() if wire is not None else nullcontext(stop) as ended:
            waits = [asyncio.ensure_future(event.wait()) for event in (stop, ended)]
            try:
                await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def row(self, sql: str, params: Params, limit_s: float) -> tuple[Any, ...]:
        return await self._connection.row(sql, params, limit_s)

    async def close(self) -> None:
        self._connection.close()


async def open_session(address: Address, resource: str, limit_s: float) -> SqlServerSession:
    """Open a session and return it, ready to take the lock. Raises PoolerError if the driver's pool is on.

    No retry can help against that: the program must turn the pool off.
    """
    driver.set_up()
    if driver.is_pooled():
        raise PoolerError(POOLED)
    session = SqlServerSession(address, resource)
    try:
        await session.prepare(limit_s)
    except BaseException:
        await session.close()
        raise
    return session
