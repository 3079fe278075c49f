"""The lock's own connection. A real one is probed, bounded and ended by the server; any other is used as in spec 002.

Session advisory locks have no expiry. `idle_session_timeout`, set in the statement that takes the lock, gives them one:
a leader that is frozen or cut off sends no probe, and the server ends its session.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import psycopg

from fencehold.backends.postgres import wire
from fencehold.backends.sql_text import DEFAULT_TABLE, Statements, pyformat
from fencehold.model.errors import FenceholdError, redact
from pgleaderlock.errors import ConnectionError, LockError, PoolerError  # noqa: A004 - spec 002's name

ConnectFn = Callable[[], Awaitable[Any]]

SQL = Statements("pgleaderlock", DEFAULT_TABLE, pyformat)

# As spec 002 writes them, for connections that are not psycopg's own.
PLAIN_LOCK = "SELECT pg_try_advisory_lock(%s, %s)"
PLAIN_UNLOCK = "SELECT pg_advisory_unlock(%s, %s)"
PLAIN_PROBE = "SELECT 1"

ROUND_TRIP_LIMIT_S = 5.0

POOLER = (
    "a pooler in transaction (or statement) mode sits between this process and PostgreSQL: it would give the lock's "
    "session to other clients, and two of them could hold one lock. Connect to PostgreSQL directly, or to a PgBouncer "
    "database with pool_mode = session."
)


class Session(Protocol):
    """One connection to one lock; every verb ends within its limit."""

    async def try_lock(self, limit_s: float) -> bool: ...

    async def probe(self, limit_s: float) -> bool: ...

    async def unlock(self, limit_s: float) -> bool: ...

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None: ...

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None: ...

    async def close(self) -> None: ...

    @property
    def expires(self) -> bool:
        """Whether the server ends this session by itself when no probe comes."""
        ...


class PlainSession:
    """Spec 002's statements on whatever `connect_fn` gave: a custom driver, or a stand-in."""

    expires = False

    def __init__(self, connection: Any, key1: int, key2: int) -> None:
        self._connection = connection
        self._keys = (key1, key2)

    async def try_lock(self, limit_s: float) -> bool:
        return bool((await self._row(PLAIN_LOCK, self._keys, limit_s))[0])

    async def probe(self, limit_s: float) -> bool:
        await self._row(PLAIN_PROBE, (), limit_s)
        return True

    async def unlock(self, limit_s: float) -> bool:
        return bool((await self._row(PLAIN_UNLOCK, self._keys, limit_s))[0])

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), timeout_s)

    async def close(self) -> None:
        with suppress(Exception):
            await asyncio.wait_for(self._connection.close(), 2.0)

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None:
        raise LockError("a fencing epoch needs a psycopg connection")

    async def _row(self, statement: str, params: Sequence[Any], limit_s: float) -> Sequence[Any]:
        async def ask() -> Sequence[Any]:
            cursor = await self._connection.execute(statement, params)
            row: Sequence[Any] | None = await cursor.fetchone()
            return row if row is not None else (None,)

        return await asyncio.wait_for(ask(), limit_s)


class PostgresSession:
    """A real connection: possession is probed, hints arrive, and whatever hangs is cut off by its socket."""

    expires = True

    def __init__(self, connection: wire.Connection, key1: int, key2: int, timeout_s: float) -> None:
        self._connection = connection
        self._keys = {"key1": key1, "key2": key2, "timeout_ms": str(max(1, int(timeout_s * 1000)))}
        self._token = secrets.token_hex(8)
        self._news = asyncio.Event()

    async def prepare(self, limit_s: float, twin: Callable[[], Awaitable[wire.Connection]]) -> None:
        """Mark the session as ours and listen; refuse a pooler that shares sessions."""
        await self._connection.set_autocommit(True)
        self._connection.prepare_threshold = None
        pid = (await self._row(SQL["mark"], {"token": self._token}, limit_s))[0]
        if pid != self._connection.info.backend_pid:
            await self._refuse_shared_session(pid, limit_s, twin)
        self._connection.add_notify_handler(self._heard)
        await self._row(SQL["listen"], None, limit_s)

    async def _refuse_shared_session(
        self, pid: int, limit_s: float, twin: Callable[[], Awaitable[wire.Connection]]
    ) -> None:
        """Behind a pooler: while we are idle, does another client get our session?"""
        other = await twin()
        try:
            work = row_of(other, SQL["pid"], None)
            if (await wire.bounded(other, work, wire.fixed(limit_s)))[0] == pid:
                raise PoolerError(POOLER)
        finally:
            wire.discard(other)

    async def try_lock(self, limit_s: float) -> bool:
        mine, locked = await self._row(SQL["lock"], {**self._keys, "token": self._token}, limit_s)
        if not mine:
            raise PoolerError(POOLER)
        return bool(locked)

    async def probe(self, limit_s: float) -> bool:
        return bool((await self._row(SQL["probe"], self._keys, limit_s))[0])

    async def unlock(self, limit_s: float) -> bool:
        return bool((await self._row(SQL["unlock"], self._keys, limit_s))[0])

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._news.clear()
        fd = self._connection.fileno()
        loop.add_reader(fd, self._readable)
        waits = [asyncio.ensure_future(self._news.wait()), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(fd)
            for wait in waits:
                wait.cancel()

    def _readable(self) -> None:
        try:
            self._connection.pgconn.consume_input()
            while notify := self._connection.pgconn.notifies():
                self._told(notify.extra.decode("utf-8", "replace"))
        except psycopg.Error:
            self._news.set()  # the connection is gone: the next attempt finds out

    def _heard(self, notify: psycopg.Notify) -> None:
        self._told(notify.payload)

    def _told(self, payload: str) -> None:
        if payload == f"{self._keys['key1']} {self._keys['key2']}":
            self._news.set()

    async def close(self) -> None:
        wire.discard(self._connection)

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = await self._row(statement, params, limit_s)
        return row

    async def _row(self, statement: str, params: dict[str, Any] | None, limit_s: float) -> Any:
        work = row_of(self._connection, statement, params)
        return await wire.bounded(self._connection, work, wire.fixed(limit_s))


async def row_of(connection: wire.Connection, statement: str, params: dict[str, Any] | None) -> Any:
    cursor = await connection.execute(statement.encode(), params)
    return await cursor.fetchone() if cursor.description else None


async def open_session(
    dsn: str, connect_fn: ConnectFn | None, key1: int, key2: int, *, timeout_s: float, limit_s: float
) -> Session:
    """Connected and ready, or ConnectionError (try again) or PoolerError (do not)."""

    async def real() -> wire.Connection:
        return await connect_once(dsn, limit_s)

    connection = await real() if connect_fn is None else await _custom(connect_fn, limit_s)
    if not isinstance(connection, psycopg.AsyncConnection):
        return PlainSession(connection, key1, key2)
    session = PostgresSession(connection, key1, key2, timeout_s)

    async def twin() -> wire.Connection:
        made: wire.Connection = await real() if connect_fn is None else await _custom(connect_fn, limit_s)
        return made

    try:
        await session.prepare(limit_s, twin)
    except Exception as error:  # noqa: BLE001 - whatever it was, the session is not fit
        await session.close()
        raise as_lock_error(error) from None
    except BaseException:
        await session.close()
        raise
    return session


async def connect_once(dsn: str, limit_s: float) -> wire.Connection:
    """A direct connection, or ConnectionError within the limit."""
    try:
        return await wire.connect(wire.conninfo(plain(dsn)), limit_s, autocommit=True)
    except FenceholdError as error:
        raise ConnectionError(f"{error.message} {error.hint}".strip()) from None


def plain(dsn: str) -> str:
    """A SQLAlchemy URL names its driver; libpq knows none."""
    scheme, separator, rest = dsn.partition("://")
    return f"postgresql://{rest}" if separator and scheme.partition("+")[0] in ("postgresql", "postgres") else dsn


async def _custom(connect_fn: ConnectFn, limit_s: float) -> Any:
    try:
        return await asyncio.wait_for(_awaited(connect_fn), limit_s)
    except Exception as error:
        raise ConnectionError(_text(error)) from error


async def _awaited(connect_fn: ConnectFn) -> Any:
    return await connect_fn()


def as_lock_error(error: Exception) -> Exception:
    """A driver's error as one of ours, without secrets."""
    if isinstance(error, (ConnectionError, LockError)):
        return error
    lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError, TimeoutError))
    return (ConnectionError if lost else LockError)(_text(error))


def _text(error: Exception) -> str:
    return redact(" ".join(str(error).split())) or type(error).__name__
