"""The lock's own connection to PostgreSQL.

With psycopg it is probed, every call has a time limit, and the server ends its session if it is silent. A connection of
another driver, from `connect_fn`, gets only the statements of spec 002.

Session advisory locks have no expiry. The statement that takes the lock sets `idle_session_timeout`, which gives the
lock one: a leader that is frozen or cut off sends no probe, and the server ends its session.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fencehold.backends.postgres import encodings, wire
from fencehold.backends.sql.statements import LEASES, Statements, pyformat
from fencehold.model.election import lock_errors
from fencehold.model.errors import ConfigurationError, FenceholdError
from fencehold.ports.lock_session import LockSession
from fencehold.ports.time_limit import TimeLimit, fixed
from pgleaderlock.errors import ConnectionError, HopelessError, PoolerError  # noqa: A004 - spec 002's name

T = TypeVar("T")

ConnectFn = Callable[[], Awaitable[Any]]

SQL = Statements("pgleaderlock", LEASES.default_table, pyformat)
STORE_SQL = Statements("fencehold.backends.postgres", LEASES.default_table, pyformat)

# As spec 002 writes them, for connections that are not psycopg's own.
PLAIN_LOCK = "SELECT pg_try_advisory_lock(%s, %s)"
PLAIN_UNLOCK = "SELECT pg_advisory_unlock(%s, %s)"
PLAIN_PROBE = "SELECT 1"

SCHEME = re.compile(r"[A-Za-z][\w.+-]*", re.ASCII)  # the scheme of a URL; libpq's own form has an = before any ://
CLOSE_LIMIT_S = 2.0
GRACE_S = 1.0  # so that the inner limit ends first: its error has a hint
EVICT_PATIENCE_MS = 1000

POOLER = (
    "a pooler in transaction (or statement) mode sits between this process and PostgreSQL: it would give the lock's "
    "session to other clients, and two of them could hold one lock. Connect to PostgreSQL directly, or to a PgBouncer "
    "database with pool_mode = session."
)


@dataclass(frozen=True)
class Birth:
    """What identifies a server session: its process id and its start time. A process id alone may be used again."""

    pid: int
    born_at: Any


class Session(LockSession, Protocol):
    """One connection that takes one lock. Its `run` lets a fencing epoch use the same connection."""

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None: ...


class PlainSession:
    """A connection of another driver, or a test's stand-in, from `connect_fn`.

    It runs only the statements of spec 002.
    """

    expires = False
    birth = None

    def __init__(self, connection: Any, key1: int, key2: int) -> None:
        self._connection = connection
        self._keys = (key1, key2)

    async def try_lock(self, limit_s: float) -> bool:
        (is_held,) = await self._row(PLAIN_LOCK, self._keys, limit_s)
        return bool(is_held)

    async def probe(self, limit_s: float) -> bool:
        await self._row(PLAIN_PROBE, (), limit_s)
        return True

    async def unlock(self, limit_s: float) -> bool:
        (was_held,) = await self._row(PLAIN_UNLOCK, self._keys, limit_s)
        return bool(was_held)

    async def evict(self, born: Birth, limit_s: float) -> bool:
        return False

    async def rest(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with TimeLimit(timeout_s):
                await stop.wait()

    async def close(self) -> None:
        with suppress(Exception):
            await within(CLOSE_LIMIT_S, self._connection.close())

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None:
        raise HopelessError("a fencing epoch needs a psycopg connection")

    async def _row(self, statement: str, params: Sequence[Any], limit_s: float) -> Sequence[Any]:
        async def ask() -> Sequence[Any]:
            cursor = await self._connection.execute(statement, params)
            row: Sequence[Any] | None = await cursor.fetchone()
            return row if row is not None else (None,)

        return await within(limit_s, ask())


class PostgresSession:
    """A psycopg connection that takes one lock.

    A probe checks that it still holds the lock. It receives notifications of a release, and it shuts its socket down if
    a call hangs.
    """

    expires = True

    def __init__(self, connection: wire.Connection, key1: int, key2: int, timeout_s: float, is_ours: bool) -> None:
        self._connection = connection
        self._is_ours = is_ours
        self._token = secrets.token_hex(8)
        self._keys = {"key1": key1, "key2": key2, "token": self._token}
        self._timeout_ms = str(max(1, int(timeout_s * 1000)))
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.birth: Birth | None = None

    async def prepare(self, limit_s: float, twin: Callable[[], Awaitable[wire.Connection]]) -> None:
        """Mark the session as ours and listen for releases.

        Raises PoolerError behind a pooler that gives one session to several clients. `twin` opens a second connection,
        which is used to find that out.
        """
        await self._connection.set_autocommit(True)
        self._connection.prepare_threshold = None
        pid, _, born_at, *_ = await self._row(SQL["mark"], {"token": self._token}, limit_s)
        if pid == self._connection.info.backend_pid:
            self.birth = Birth(pid, born_at)
            if self._is_ours:  # a role's limits would end a waiting follower, and a leader that must wait
                await self._row(STORE_SQL["session_limits"], None, limit_s)
        else:
            await self._refuse_shared_session(pid, limit_s, twin)
        self._connection.add_notify_handler(self._heard)
        await self._row(SQL["listen"], None, limit_s)

    async def _refuse_shared_session(
        self, pid: int, limit_s: float, twin: Callable[[], Awaitable[wire.Connection]]
    ) -> None:
        """Raise PoolerError if a second connection gets the same server session while ours is idle.

        Called behind a pooler; `twin` opens the second connection.
        """
        other = await twin()
        try:
            work = wire.row_of(other, SQL["pid"], None)
            (others_pid,) = await wire.bounded(other, work, fixed(limit_s))
            if others_pid == pid:
                raise PoolerError(POOLER)
        finally:
            wire.discard(other)

    async def try_lock(self, limit_s: float) -> bool:
        self._news.clear()  # before the try: a release notified right after a refusal must count
        mine, locked = await self._row(SQL["lock"], {**self._keys, "timeout_ms": self._timeout_ms}, limit_s)
        if not mine:
            raise PoolerError(POOLER)
        return bool(locked)

    async def probe(self, limit_s: float) -> bool:
        mine, held = await self._row(SQL["probe"], self._keys, limit_s)
        if not mine:
            raise PoolerError(POOLER)
        return bool(held)

    async def unlock(self, limit_s: float) -> bool:
        was_held, *_ = await self._row(SQL["unlock"], self._keys, limit_s)
        return bool(was_held)

    async def evict(self, born: Birth, limit_s: float) -> bool:
        params = {**self._keys, "pid": born.pid, "born_at": born.born_at, "patience_ms": EVICT_PATIENCE_MS}
        (is_gone,) = await self._row(SQL["evict"], params, limit_s) or (False,)
        return bool(is_gone)

    async def rest(self, timeout_s: float) -> None:
        await self._watch(timeout_s, self._ended)

    async def wait_for_news(self, timeout_s: float, stop: asyncio.Event) -> None:
        await self._watch(timeout_s, self._ended, self._news, stop)

    async def _watch(self, timeout_s: float, *events: asyncio.Event) -> None:
        """Wait until one of the events is set, or for the timeout. Reads the server's notifications meanwhile."""
        loop = asyncio.get_running_loop()
        self._readable()  # data that came with the last answer wakes no reader
        if self._ended.is_set():
            return
        fd = self._connection.fileno()
        loop.add_reader(fd, self._readable)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
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
            self._ended.set()  # the next statement raises the reason

    def _heard(self, notify: psycopg.Notify) -> None:
        self._told(notify.payload)

    def _told(self, payload: str) -> None:
        if payload == f"{self._keys['key1']} {self._keys['key2']}":
            self._news.set()

    async def close(self) -> None:
        """Shut the connection down, so that the server sees the end at once.

        The socket's descriptor is closed when no call uses it any more, or after a time limit.
        """
        wire.cut(self._connection)
        try:
            async with TimeLimit(wire.CUT_LIMIT_S):
                await self._quiet.wait()
        except TimeoutError:
            pass
        finally:
            wire.discard(self._connection)

    async def run(self, statement: str, params: dict[str, Any], limit_s: float) -> tuple[Any, ...] | None:
        encodings.must_keep_text(self._connection, params)
        with encodings.text_must_fit():
            row: tuple[Any, ...] | None = await self._row(statement, params, limit_s)
        return row

    async def _row(self, statement: str, params: dict[str, Any] | None, limit_s: float) -> Any:
        self._quiet.clear()
        try:
            work = wire.row_of(self._connection, statement, params)
            return await wire.bounded(self._connection, work, fixed(limit_s))
        finally:
            self._quiet.set()


async def open_session(
    dsn: str, connect_fn: ConnectFn | None, key1: int, key2: int, *, timeout_s: float, limit_s: float
) -> Session:
    """Open a session and return it, ready to take the lock.

    Raises ConnectionError if a later try may work, PoolerError or HopelessError if none can.
    """

    async def real() -> wire.Connection:
        return await connect_once(dsn, limit_s)

    connection = await real() if connect_fn is None else await _custom(connect_fn, limit_s)
    if not isinstance(connection, psycopg.AsyncConnection):
        return PlainSession(connection, key1, key2)
    session = PostgresSession(connection, key1, key2, timeout_s, is_ours=connect_fn is None)

    async def twin() -> wire.Connection:
        made: wire.Connection = await real() if connect_fn is None else await _custom(connect_fn, limit_s)
        return made

    try:
        await session.prepare(limit_s, twin)
    except Exception as error:  # noqa: BLE001 - after any error the session cannot be used
        await session.close()
        raise as_lock_error(error) from None
    except BaseException:
        await session.close()
        raise
    return session


async def connect_once(dsn: str, limit_s: float) -> wire.Connection:
    """Return a new connection to the server.

    Raises ConnectionError within the limit, or HopelessError if the DSN cannot be read.
    """
    try:
        return await wanted(limit_s + GRACE_S, wire.connect(conninfo(dsn), limit_s, autocommit=True))
    except (FenceholdError, TimeoutError) as error:
        raise as_lock_error(error) from None


def conninfo(dsn: str) -> str:
    """Return the DSN in libpq's form, with settings that detect a dead server.

    The application name is `pgleaderlock` if the DSN sets none. Raises ConfigurationError if it is not a PostgreSQL
    address.
    """
    # A SQLAlchemy URL names its driver; libpq does not know that form.
    scheme, separator, rest = dsn.partition("://")
    if separator and scheme.partition("+")[0] in ("postgresql", "postgres"):
        dsn = f"postgresql://{rest}"
    elif separator and SCHEME.fullmatch(scheme):
        raise ConfigurationError(
            f"pgleaderlock works on PostgreSQL only, and this address begins with {scheme}://.",
            hint="Write postgresql://user@host/db. On other databases: `store.leader(...)` of fencehold.",
            code="bad_url",
        )
    info = wire.conninfo(dsn)
    named = conninfo_to_dict(info).get("application_name")
    return make_conninfo(info, application_name="pgleaderlock") if named == "fencehold" else info


async def _custom(connect_fn: ConnectFn, limit_s: float) -> Any:
    async def connect() -> Any:
        return await connect_fn()

    try:
        return await wanted(limit_s, connect())
    except Exception as error:
        raise ConnectionError(lock_errors.text_of(error)) from error


async def within(limit_s: float, work: Awaitable[T]) -> T:
    """Await `work` and return its result. Raises TimeoutError at the limit.

    At the limit `work` is cancelled; if it ignores the cancel, it runs on, and nobody waits for it.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_seen)
    try:
        await asyncio.wait([task], timeout=limit_s)
    finally:
        task.cancel()
    if not task.done():
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return task.result()


async def wanted(limit_s: float, connecting: Awaitable[T]) -> T:
    """Await `connecting` and return the new connection. Raises TimeoutError at the limit.

    A connection that arrives after the limit is closed. A cancel of the caller does not stop `connecting` at once:
    psycopg would leave the half-open connection to the garbage collector.
    """
    task = asyncio.ensure_future(connecting)
    try:
        await asyncio.wait([task], timeout=limit_s)
    except asyncio.CancelledError:
        task.add_done_callback(_unwanted)
        asyncio.get_running_loop().call_later(limit_s, task.cancel)
        raise
    if not task.done():
        task.add_done_callback(_unwanted)
        task.cancel()
        raise TimeoutError(f"no connection within {limit_s:g} s")
    return task.result()


def _unwanted(done: asyncio.Future[Any]) -> None:
    if done.cancelled() or done.exception() is not None:
        return
    if isinstance(connection := done.result(), psycopg.AsyncConnection):
        wire.discard(connection)
    else:
        asyncio.ensure_future(connection.close()).add_done_callback(_seen)


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def as_lock_error(error: Exception) -> Exception:
    """Return a driver's error as one of the lock's errors, without secrets."""
    return lock_errors.as_lock_error(error, lost=(psycopg.OperationalError, psycopg.InterfaceError))
