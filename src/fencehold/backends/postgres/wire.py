"""Connections whose every use has a time limit.

psycopg's own waits have no end if the server is dead, so when the time is over the socket is shut down.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import select
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from fencehold.backends.postgres import encodings, faults, hosts
from fencehold.backends.sql.abandoned import retrieve
from fencehold.model.errors import ConfigurationError, Unavailable
from fencehold.ports.time_limit import fixed

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Any]

CONNECT_LIMIT_S = 10.0
CUT_LIMIT_S = 1.0
AGAIN_S = 0.25  # while one host is silent, those that refused are tried again: one may have been promoted


def conninfo(url: str) -> str:
    """Return the URL in libpq's form, with settings that detect a dead server.

    Raises ConfigurationError (bad_url) if the URL cannot be read; the driver's own parse error is never shown.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise _unknown_parameter(url) or _unreadable() from None
    ports = str(given.get("port", "")).replace(",", "")
    misread = "@" in str(given.get("dbname", "")) or "@" in str(given.get("host", ""))[1:]  # @name: an abstract socket
    if ports and not ports.isdigit() and not misread and not _may_be_cut(url):
        raise _bad_url("The port in the PostgreSQL URL is not a number", "5432 is the usual one")
    if (ports and not ports.isdigit()) or misread:
        raise _unreadable()  # unescaped, / or @ in the password makes parts of it a host, a port or a database name
    try:
        hosts.places(url)
    except ValueError as error:
        raise ConfigurationError(
            f"The hosts of the PostgreSQL URL do not fit together: {error}.",
            hint="Write postgresql://user@host1:5432,host2:5432/dbname: every host with its port, or one port for all.",
            code="bad_url",
        ) from None
    defaults: dict[str, Any] = {
        "application_name": "fencehold",
        "connect_timeout": math.ceil(CONNECT_LIMIT_S),
        "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "target_session_attrs": "read-write",
    }  # fmt: skip
    # From a database in SQL_ASCII psycopg gives bytes for text, unless the connection asks for an encoding.
    return make_conninfo(**{**defaults, **given, "client_encoding": "utf8"})


def _may_be_cut(url: str) -> bool:
    """Whether an unescaped / ? or # in the URL's password may have split it: the @ then comes after one of these."""
    place = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    return "@" in url and "@" not in place


def _unknown_parameter(url: str) -> ConfigurationError | None:
    """Return the error for a parameter of the URL that libpq does not know, naming it.

    None if something else may be wrong, or if the name may be part of the password.
    """
    plain, _, query = url.partition("?")
    if not query or "@" in query or _may_be_cut(plain):
        return None
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    unknown = [name for name in (pair.partition("=")[0] for pair in query.split("&")) if name not in known]
    if not unknown:
        return None
    return _bad_url(f"PostgreSQL URLs have no parameter {unknown[0]!r:.40}", "sslmode is one of those that there are")


def _bad_url(problem: str, advice: str) -> ConfigurationError:
    hint = f"Write postgresql://user:***@host:5432/dbname?sslmode=require; {advice}."
    return ConfigurationError(f"{problem}.", hint=hint, code="bad_url")


def _unreadable() -> ConfigurationError:
    """Return the error for a URL that cannot be read. It repeats nothing of the URL, which may hold a password."""
    return ConfigurationError(
        "The PostgreSQL URL cannot be read (it is not repeated here, it may hold a password).",
        hint="Write postgresql://user:***@host:5432/dbname; special characters of the password (***) as %40, %2F etc.",
        code="bad_url",
    )


async def connect(info: str, limit_s: float, *, autocommit: bool, errors: list[Exception] | None = None) -> Connection:
    """Return a connection to the first usable server of the URL.

    Raises Unavailable or ConfigurationError, within the limit, if there is none. An address is tried alone for a while,
    then the next one is tried beside it; the first that is usable wins. An attempt that hangs is not waited for. The
    error of each failed attempt is appended to `errors` at once.
    """
    race = _Race(info, [] if errors is None else errors, autocommit)
    return await race.first(fixed(limit_s), limit_s)


class _Race:
    """Attempts to connect to the addresses of one URL, which run in parallel; the first to succeed wins.

    An attempt begins when the one before has failed, or has had some time alone. Host names are resolved in parallel
    too, so one that hangs does not delay the others. While one host is silent, those that refused are tried again: a
    standby is promoted when its primary has lost power.
    """

    def __init__(self, info: str, errors: list[Exception], autocommit: bool) -> None:
        self._info, self._autocommit = info, autocommit
        self._resolving: set[asyncio.Task[list[hosts.Place]]] = set()
        self._waiting: list[hosts.Place] = []
        self._running: dict[asyncio.Task[Connection], hosts.Place] = {}
        self._refused: list[hosts.Place] = []
        self._errors = errors

    async def first(self, left_s: Callable[[], float], limit_s: float) -> Connection:
        try:
            await self._resolve(limit_s)
            head_start_s = hosts.head_start_s(limit_s, len(self._waiting) + len(self._resolving))
            while left_s() > 0 and (self._waiting or self._running or self._resolving):
                if self._waiting:
                    self._begin(self._waiting.pop(0))
                alone_s = head_start_s if self._waiting else AGAIN_S if self._refused else left_s()
                if (connection := await self._turn(min(alone_s, left_s()))) is not None:
                    return connection
        finally:
            for silent_place in self._running.values():
                hosts.said_nothing(self._info, silent_place)
            for name in self._resolving:
                name.cancel()
            for attempt in self._running:
                _abandon(attempt)
        if self._running or self._waiting or self._resolving:
            raise silent(self._info, limit_s, self._errors)
        raise faults.of_connect(*self._errors, host_count=len(hosts.places(self._info)))

    async def _resolve(self, limit_s: float) -> None:
        """Resolve all host names, and wait for them as long as one host is tried alone.

        The addresses found by then are put in order to be tried; later ones are added at the end.
        """
        places = hosts.places(self._info)
        tasks = [asyncio.ensure_future(hosts.addresses(place)) for place in places]
        self._resolving = set(tasks)
        await asyncio.wait(tasks, timeout=hosts.head_start_s(limit_s, len(places)))
        for task in tasks:
            if task.done():
                self._resolved(task)
        self._waiting = hosts.in_order(self._info, self._waiting)

    async def _turn(self, limit_s: float) -> Connection | None:
        """Wait until an attempt, or the resolving of a name, has ended. Return the connection if an attempt got one.

        None if there is none yet; the caller then begins the next attempt.
        """
        under_way: list[asyncio.Task[Any]] = [*self._running, *self._resolving]
        done, _ = await asyncio.wait(under_way, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not done and not self._waiting:
            self._ask_again()
        for name in self._resolving & done:
            self._resolved(name)
        won = [connection for one in self._running.keys() & done if (connection := self._ended(one)) is not None]
        for spare in won[1:]:
            discard(spare)
        return won[0] if won else None

    def _ask_again(self) -> None:
        again, self._refused = self._refused, []
        for place in again:
            self._begin(place)

    def _begin(self, place: hosts.Place) -> None:
        work = psycopg.AsyncConnection.connect(hosts.at(self._info, place), autocommit=self._autocommit)
        self._running[asyncio.ensure_future(work)] = place

    def _resolved(self, name: asyncio.Task[list[hosts.Place]]) -> None:
        self._resolving.discard(name)
        try:
            self._waiting += name.result()
        except OSError as error:
            self._errors.append(error)

    def _ended(self, attempt: asyncio.Task[Connection]) -> Connection | None:
        place = self._running.pop(attempt)
        try:
            connection = attempt.result()
        except (psycopg.Error, OSError) as error:
            self._errors.append(error)
            self._refused.append(place)
            is_silent = isinstance(error, psycopg.errors.ConnectionTimeout)
            (hosts.said_nothing if is_silent else hosts.spoke)(self._info, place)
            return None
        hosts.answered(self._info, place)
        return connection


async def read_only_because(info: str, limit_s: float) -> str:
    """Return the hint for the case that no server of the URL takes writes.

    It differs if one of them is a primary all the same: then a setting makes its sessions read-only.
    """
    try:
        leave(await connect(make_conninfo(info, target_session_attrs="primary"), limit_s, autocommit=True))
    except Unavailable as error:
        return faults.REPLICA_HINT if error.code == "read_only" else faults.READ_ONLY_HINT
    return faults.SETTING_HINT


def wants_writes(info: str) -> bool:
    """Whether the connection string asks for a server that takes writes, as it does unless the URL says otherwise."""
    return conninfo_to_dict(info).get("target_session_attrs") == "read-write"


def place_of(connection: Connection) -> str:
    """Return the host and port of the connection's server as text for a message."""
    return f"{connection.info.host}:{connection.info.port}"


def is_gone(connection: Connection) -> bool:
    """Whether the server has ended this idle connection, as far as the socket shows. Returns at once."""
    try:
        if not select.select([connection], [], [], 0)[0]:
            return False
        connection.pgconn.consume_input()  # the server's last message, or a notification
        connection.pgconn.consume_input()  # the end itself
    except ValueError:  # more descriptors than select() takes: the statement will fail if it is gone
        return False
    except (OSError, psycopg.Error):
        return True
    return connection.closed


def is_proxied(connection: Connection, client_port: int | None) -> bool:
    """Whether a proxy, a pooler or an address translation is between this process and the server.

    `client_port`: the port of the client as the server sees it, which then differs from our own; None: a local socket.
    """
    if client_port is None:  # a socket of this machine
        return False
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        return bool(twin.getsockname()[1] != client_port)
    return False


def silent(info: str, limit_s: float, errors: list[Exception]) -> Unavailable:
    """Return the error Unavailable (unreachable) for a server of which an address was silent and none could be used.

    `info`: the connection string. `errors`: those of the addresses that did answer, for the message.
    """
    said = f" ({'; '.join(faults.texts_of(errors))})" if errors else ""
    return Unavailable(
        f"PostgreSQL did not answer within {limit_s:.1f} s of connecting to {hosts.named(info)}{said}.",
        hint="Check host, port and network, and that the server runs.",
        code="unreachable",
    )


def _abandon(attempt: asyncio.Future[Connection]) -> None:
    def finish(done: asyncio.Future[Connection]) -> None:
        if not done.cancelled() and done.exception() is None:
            discard(done.result())

    attempt.add_done_callback(finish)
    attempt.cancel()


def cut(connection: Connection) -> None:
    """Shut down the connection's socket, so that everything that waits for it gets an error at once."""
    with contextlib.suppress(OSError, psycopg.Error):
        twin = socket.socket(fileno=os.dup(connection.fileno()))
        try:
            twin.shutdown(socket.SHUT_RDWR)
        finally:
            twin.close()


def discard(connection: Connection) -> None:
    """Drop a connection that had trouble: it is cut at once, without a message to the server and without waiting."""
    cut(connection)
    with contextlib.suppress(Exception):
        connection.pgconn.finish()


def leave(connection: Connection) -> None:
    """End the connection in order, without waiting: the server gets the usual message, so it logs no complaint."""
    with contextlib.suppress(Exception):
        connection.pgconn.finish()


@contextlib.contextmanager
def lent(connection: Connection) -> Iterator[None]:
    """Use the connection for the block; afterwards it is ended in order, or dropped at once if the block failed."""
    try:
        yield
    except BaseException:
        discard(connection)
        raise
    leave(connection)


class Limit:
    """A block of work on `connection` with a time limit: when no time is left, its socket is shut down.

    The error of psycopg that follows leaves the block as GivenUp, which states the true cause.
    """

    def __init__(self, connection: Connection, left_s: Callable[[], float]) -> None:
        self._connection, self._left_s = connection, left_s
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._waited_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._timer:
            self._timer.cancel()
        if self._waited_s is not None and isinstance(error, psycopg.Error) and faults.is_connection_lost(error):
            raise faults.GivenUp(self._waited_s) from None

    def _check(self) -> None:
        left_s = self._left_s()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check)
        else:
            self._waited_s = self._loop.time() - self._began_s
            cut(self._connection)


async def bounded(connection: Connection, work: Coroutine[Any, Any, T], left_s: Callable[[], float]) -> T:
    """Return the result of `work`, which uses `connection`; when no time is left, the connection's socket is shut down.

    `left_s` is asked again when the time seems over, so a limit that moves (a renewed lease) is respected. On a cancel
    the connection is cut and `work` fails by itself, because psycopg's own clean-up after a cancel can hang.
    """
    task = asyncio.get_running_loop().create_task(_unless_cancelled(work))
    limit = Limit(connection, left_s)
    try:
        with limit:
            return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            cut(connection)
            task.add_done_callback(retrieve)
            # It must release the socket before another connection can get the same descriptor number.
            await asyncio.wait([task], timeout=CUT_LIMIT_S)
        raise
    finally:
        if task.done():
            work.close()  # it never began if the task was cancelled before its first step


async def row_of(connection: Connection, statement: str, params: Mapping[str, Any] | None = None) -> Any:
    """Return the first row of the statement as a plain tuple; None if there is no row.

    The connection's own row factory and encoding have no effect on it.
    """
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    await cursor.execute(statement.encode(), params)
    row = await cursor.fetchone() if cursor.description else None
    [read] = encodings.readable([row]) if row is not None else [None]
    return read


async def _unless_cancelled(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; if the task was cancelled, raise CancelledError instead of any error of `work`.

    asyncio.run() cancels all tasks at its end and would print the other error: that the connection was cut.
    """
    task = asyncio.current_task()
    assert task is not None, "it is one"
    try:
        return await work
    except Exception:
        if task.cancelling():
            raise asyncio.CancelledError from None
        raise
