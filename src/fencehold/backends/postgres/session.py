"""The keeper's one connection: all lease statements and the LISTEN share it, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import psycopg

from fencehold.backends.postgres import faults, session_limits, wire
from fencehold.backends.sql_text import Statements, advised
from fencehold.model.errors import FenceholdError, Unavailable
from fencehold.ports.wakeup import UNKNOWN, Hint

PREPARE_AFTER = 2

Rows = list[tuple[Any, ...]]
T = TypeVar("T")


class Session:
    """Every call ends within its limit; a connection that saw an error, a timeout or a cancel is dropped."""

    def __init__(self, info: str, statements: Statements) -> None:
        self._info = info
        self.statements = statements
        self._lock = asyncio.Lock()
        self._connection: wire.Connection | None = None
        self._connecting: asyncio.Task[wire.Connection] | None = None
        self._connect_errors: list[Exception] = []
        self._hints: list[Hint] = []
        self._wants_listen = False
        self._listening: wire.Connection | None = None
        self._watched_fd: int | None = None
        self.is_pooled = False
        self._trouble = _DropOnTrouble(self)

    async def run(self, name: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        """The rows of one autocommitted statement."""
        return await self._alone(lambda connection: self._fetch(connection, name, params), limit_s)

    async def _alone(self, work: Callable[[wire.Connection], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """`work` with the connection to itself, within the limit."""
        left_s = wire.fixed(limit_s)
        await self._turn(limit_s)
        try:
            connection = await self._ready(left_s())
            self._unwatch()
            try:
                with self._trouble:
                    return await wire.bounded(connection, self._listening_first(connection, work), left_s)
            finally:
                self._watch()
        finally:
            self._lock.release()

    async def _listening_first(
        self, connection: wire.Connection, work: Callable[[wire.Connection], Coroutine[Any, Any, T]]
    ) -> T:
        if self._must_listen(connection):
            await self._listen(connection)
        try:
            return await work(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise await self._denied(connection, error) from None

    async def _denied(self, connection: wire.Connection, error: psycopg.Error) -> FenceholdError:
        rights: Rows = []
        with contextlib.suppress(psycopg.Error):
            rights = await (await connection.execute(self.statements["rights_missing"])).fetchall()
        return faults.denied(error, [row[0] for row in rights])

    def _must_listen(self, connection: wire.Connection) -> bool:
        return self._wants_listen and not self.is_pooled and self._listening is not connection

    async def _turn(self, limit_s: float) -> None:
        if not self._lock.locked():
            await self._lock.acquire()  # at once: a limit would cost more than the lock
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable("The store's connection was busy; nothing was sent.", code="busy") from None

    async def _fetch(self, connection: wire.Connection, name: str, params: Mapping[str, Any]) -> Rows:
        cursor = await connection.execute(self.statements[name], params or None)
        return await cursor.fetchall() if cursor.description else []

    async def _ready(self, limit_s: float) -> wire.Connection:
        """Connected, within this call's limit; a slow connect goes on in the background for the next call."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connect_errors = []
            self._connecting = asyncio.create_task(self._connect(self._connect_errors))
            self._connecting.add_done_callback(_retrieve)
        done, _ = await asyncio.wait([self._connecting], timeout=max(0.0, limit_s))
        if not done:
            raise wire.silent(self._info, limit_s, self._connect_errors)
        task, self._connecting = self._connecting, None
        self._connection = task.result()
        return self._connection

    async def _connect(self, errors: list[Exception]) -> wire.Connection:
        connection = await wire.connect(self._info, wire.CONNECT_LIMIT_S, autocommit=True, errors=errors)
        try:
            own = session_limits.lifted(connection, self.statements)
            self.is_pooled = not await wire.bounded(connection, own, wire.fixed(wire.CONNECT_LIMIT_S))
            # A pooler hands each statement to any server session: prepared statements and LISTEN would go astray.
            connection.prepare_threshold = None if self.is_pooled else PREPARE_AFTER
            connection.add_notify_handler(lambda notify: self._tell(notify.payload))
            await wire.bounded(connection, self._settle(connection), wire.fixed(wire.CONNECT_LIMIT_S))
        except psycopg.Error as error:
            wire.discard(connection)
            raise faults.of_statement(error) from None
        except BaseException:
            wire.discard(connection)
            raise
        return connection

    async def _settle(self, connection: wire.Connection) -> None:
        """What else a new connection needs; nothing here."""

    async def _listen(self, connection: wire.Connection) -> None:
        await connection.execute(self.statements["changes"])
        self._listening = connection

    # --- hints ---

    def on_hint(self, hint: Hint) -> None:
        self._hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        """True once notifications arrive here; every later connection listens from its first moment."""
        self._wants_listen = True
        connection = self._connection
        if connection is None or connection is not self._listening:
            await self.run("probe", {}, limit_s)
        return not self.is_pooled

    def _tell(self, payload: str) -> None:
        what, _, name = payload.partition(" ")
        for hint in self._hints:
            hint(what, name)

    def _watch(self) -> None:
        """While no statement runs, notifications are read as they arrive."""
        connection = self._connection
        if connection is not None and not connection.closed and self._wants_listen and not self.is_pooled:
            self._watched_fd = connection.fileno()
            asyncio.get_running_loop().add_reader(self._watched_fd, self._readable)
            # One that came in together with the last answer is in the driver already: the socket will not tell of it.
            while notify := connection.pgconn.notifies():
                self._tell(notify.extra.decode("utf-8", "replace"))

    def _unwatch(self) -> None:
        if self._watched_fd is not None:
            asyncio.get_running_loop().remove_reader(self._watched_fd)
            self._watched_fd = None

    def _readable(self) -> None:
        assert self._connection is not None, "watched only while connected"
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            while notify := pgconn.notifies():
                self._tell(notify.extra.decode("utf-8", "replace"))
        except psycopg.Error:
            self._drop()
            self._tell(UNKNOWN)  # whatever was said meanwhile was missed: look for yourselves

    def _drop(self) -> None:
        self._unwatch()
        if self._connection is not None:
            wire.discard(self._connection)
            self._connection = None

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None and not self._lock.locked():
            self._unwatch()
            wire.leave(self._connection)
            self._connection = None
        self._drop()


class _DropOnTrouble:
    """Whatever goes wrong inside, the connection is not used again; a driver's error leaves as one of ours."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self._session._drop()
        if isinstance(error, psycopg.Error):
            raise advised(faults.of_statement(error), self._session.statements) from None


def _retrieve(task: asyncio.Task[wire.Connection]) -> None:
    if not task.cancelled():
        task.exception()
