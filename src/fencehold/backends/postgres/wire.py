"""Connections with a hard limit: psycopg's waiting cannot be bounded on a dead peer, shutting its socket down can."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fencehold.backends.postgres import faults, hosts
from fencehold.model.errors import ConfigurationError, Unavailable

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Any]

CONNECT_LIMIT_S = 10.0
CUT_LIMIT_S = 1.0


def conninfo(url: str) -> str:
    """libpq's form of the URL with settings that notice a dead peer; the driver's own parse error is never shown."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise _unreadable() from None
    ports = str(given.get("port", "")).replace(",", "")
    misread = "@" in str(given.get("dbname", "")) or "@" in str(given.get("host", ""))[1:]  # @name: an abstract socket
    if (ports and not ports.isdigit()) or misread:
        raise _unreadable()  # an unescaped / or @ in the password makes its pieces a host, a port or a database name
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


def _unreadable() -> ConfigurationError:
    """Says nothing of what was given: libpq quotes what it could not read, which may be a piece of the password."""
    return ConfigurationError(
        "The PostgreSQL URL cannot be read (it is not repeated here, it may hold a password).",
        hint="Write postgresql://user:password@host:5432/dbname; special characters in the password as %40, %2F etc.",
        code="bad_url",
    )


async def connect(info: str, limit_s: float, *, autocommit: bool, errors: list[Exception] | None = None) -> Connection:
    """An open connection to the first usable server, or Unavailable within the limit.

    Of several addresses each is asked alone for a while, then the next one too; the first that can be used is taken.
    An attempt that hangs is abandoned, not awaited. `errors` collects why addresses could not be used, as they fail.
    """
    race = _Race(info, [] if errors is None else errors, autocommit)
    return await race.first(fixed(limit_s), limit_s)


class _Race:
    """Attempts to connect that run side by side, each begun when the one before has failed or had its head start.

    Names are resolved side by side too: one that hangs keeps nobody from the addresses of the others.
    """

    def __init__(self, info: str, errors: list[Exception], autocommit: bool) -> None:
        self._info, self._autocommit = info, autocommit
        self._resolving: set[asyncio.Task[list[hosts.Place]]] = set()
        self._waiting: list[hosts.Place] = []
        self._running: dict[asyncio.Task[Connection], hosts.Place] = {}
        self._errors = errors

    async def first(self, left_s: Callable[[], float], limit_s: float) -> Connection:
        try:
            await self._resolve(limit_s)
            head_start_s = hosts.head_start_s(limit_s, len(self._waiting) + len(self._resolving))
            while left_s() > 0 and (self._waiting or self._running or self._resolving):
                if self._waiting:
                    self._begin(self._waiting.pop(0))
                alone_s = min(head_start_s, left_s()) if self._waiting else left_s()
                if (connection := await self._turn(alone_s)) is not None:
                    return connection
        finally:
            for name in self._resolving:
                name.cancel()
            for attempt in self._running:
                _abandon(attempt)
        if self._running or self._waiting or self._resolving:
            raise silent(self._info, limit_s, self._errors)
        raise faults.of_connect(*self._errors)

    async def _resolve(self, limit_s: float) -> None:
        """Begin with what is known after the head start of one host; names that take longer join in when they are."""
        places = hosts.places(self._info)
        tasks = [asyncio.ensure_future(hosts.addresses(place)) for place in places]
        self._resolving = set(tasks)
        await asyncio.wait(tasks, timeout=hosts.head_start_s(limit_s, len(places)))
        for task in tasks:
            if task.done():
                self._resolved(task)
        self._waiting = hosts.in_order(self._info, self._waiting)

    async def _turn(self, limit_s: float) -> Connection | None:
        """Wait for one attempt or name to come to its end; the connection, if an attempt got one."""
        under_way: list[asyncio.Task[Any]] = [*self._running, *self._resolving]
        done, _ = await asyncio.wait(under_way, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        for name in self._resolving & done:
            self._resolved(name)
        won = [connection for one in self._running.keys() & done if (connection := self._ended(one)) is not None]
        for spare in won[1:]:
            discard(spare)
        return won[0] if won else None

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
            return None
        hosts.answered(self._info, place)
        return connection


async def read_only_because(info: str, limit_s: float) -> str:
    """The advice for a URL none of whose servers takes writes: whether one of them is a primary all the same."""
    try:
        leave(await connect(make_conninfo(info, target_session_attrs="primary"), limit_s, autocommit=True))
    except Unavailable as error:
        return faults.REPLICA_HINT if error.code == "read_only" else faults.READ_ONLY_HINT
    return faults.SETTING_HINT


def silent(info: str, limit_s: float, errors: list[Exception]) -> Unavailable:
    """No address could be used, and at least one has not answered; `errors` are those of the others."""
    said = f" ({'; '.join(map(faults.text_of, errors))})" if errors else ""
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
    """End the connection from underneath: whatever waits on it gets an error at once."""
    with contextlib.suppress(OSError, psycopg.Error):
        twin = socket.socket(fileno=os.dup(connection.fileno()))
        try:
            twin.shutdown(socket.SHUT_RDWR)
        finally:
            twin.close()


def discard(connection: Connection) -> None:
    """Drop it without a word to the server and without waiting: a connection that saw trouble is never reused."""
    cut(connection)
    with contextlib.suppress(Exception):
        connection.pgconn.finish()


def leave(connection: Connection) -> None:
    """End it in order, without waiting: the server is told, and has nothing to complain of in its log."""
    with contextlib.suppress(Exception):
        connection.pgconn.finish()


@contextlib.contextmanager
def lent(connection: Connection) -> Iterator[None]:
    """For one piece of work: ended in order after it, or dropped if it failed."""
    try:
        yield
    except BaseException:
        discard(connection)
        raise
    leave(connection)


async def bounded(connection: Connection, work: Coroutine[Any, Any, T], left_s: Callable[[], float]) -> T:
    """The result of `work`, which uses `connection`; when no time is left the socket is shut down under it.

    `left_s` is asked again whenever the time seems over, so a limit that moves (a renewed lease) is honoured. On
    cancellation the connection is cut and the work fails by itself: psycopg's own clean-up after a cancel can hang.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    timer: asyncio.TimerHandle | None = None

    def check() -> None:
        nonlocal timer
        left = left_s()
        if left > 0:
            timer = loop.call_later(left, check)
        else:
            cut(connection)

    check()
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            cut(connection)
            task.add_done_callback(_swallow)
            # It must let go of the socket before the descriptor's number can be given to another connection.
            await asyncio.wait([task], timeout=CUT_LIMIT_S)
        raise
    finally:
        if timer:
            timer.cancel()


def _swallow(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def fixed(limit_s: float) -> Callable[[], float]:
    """A limit that does not move, counted from now."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    return lambda: end - loop.time()
