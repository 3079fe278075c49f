"""The one connection of a store: all lease statements and the LISTEN for changes use it, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import psycopg

from fencehold.backends.postgres import faults, session_limits, wire
from fencehold.backends.postgres.commits import Commits
from fencehold.backends.sql.abandoned import retrieve
from fencehold.backends.sql.statements import Statements, advised
from fencehold.model.errors import FenceholdError, Unavailable
from fencehold.ports.time_limit import TimeLimit, fixed
from fencehold.ports.wakeup import UNKNOWN, Hint

PREPARE_AFTER = 2
FOLLOW_PAUSE_S = 0.1
LOOK = "read"  # the statement that followers run
EXPLAINED = (
    psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.UndefinedTable,
)  # fmt: skip

Rows = list[tuple[Any, ...]]
T = TypeVar("T")


class Session:
    """One connection, opened when first needed, on which statements run one at a time.

    Every call ends within its limit. After an error, a timeout or a cancel the connection is dropped, and the next call
    opens another one.
    """

    def __init__(self, info: str, statements: Statements, commits: Commits | None = None) -> None:
        self._info = info
        self.statements = statements
        self._commits = commits or Commits()
        self._lock = asyncio.Lock()
        self._connection: wire.Connection | None = None
        self._connecting: asyncio.Task[wire.Connection] | None = None
        self._connect_errors: list[Exception] = []
        self._hints: list[Hint] = []
        self._wants_listen = False
        self._has_worked = False
        self._wants_writes = wire.wants_writes(info)
        self._listening: wire.Connection | None = None
        self._watched_fd: int | None = None
        self.is_pooled = False
        self.on_unread: session_limits.Unread | None = None
        self._trouble = _DropOnTrouble(self)

    async def run(self, name: str, params: Mapping[str, Any], limit_s: float) -> Rows:
        """Run one statement, which is committed by itself, and return its rows; empty if it has no result.

        Raises one of our errors: Unavailable if nothing was executed, Uncertain if that is not known.
        """

        async def once(left_s: float) -> Rows:
            return await self._alone(lambda connection: self._fetch(connection, name, params), left_s, name)

        return await self._following(once, limit_s)

    async def _following(self, ask: Callable[[float], Awaitable[T]], limit_s: float) -> T:
        """Return the result of `ask`; while the server refuses because it takes no writes, wait and call `ask` again.

        Such a refusal means that nothing was executed. If a call has worked before, the primary has moved or is about
        to, and is looked for until the limit is over; before the first success the refusal is raised at once.
        """
        left_s = fixed(limit_s)
        refused: Unavailable | None = None
        while True:
            try:
                answer = await ask(max(0.001, left_s()))
            except Unavailable as error:
                if error.code != "read_only" and refused is not None and left_s() <= 0:
                    raise refused from error  # the cause is the refusal before, not that no time was left to repeat
                if error.code != "read_only" or not self._has_worked or left_s() <= FOLLOW_PAUSE_S:
                    raise
                refused = error
            else:
                self._has_worked = True
                return answer
            await asyncio.sleep(FOLLOW_PAUSE_S)

    async def _alone(
        self, work: Callable[[wire.Connection], Coroutine[Any, Any, T]], limit_s: float, name: str = ""
    ) -> T:
        """Return the result of `work`, which has the connection to itself and ends within the limit.

        `name`: the statement, for the rule about its commit.
        """
        left_s = fixed(limit_s)
        await self._turn(limit_s)
        try:
            connection = await self._ready(left_s())
            self._unwatch()
            try:
                with self._trouble:
                    return await wire.bounded(connection, self._listening_first(connection, work, name), left_s)
            finally:
                self._watch()
        finally:
            self._lock.release()

    async def _listening_first(
        self, connection: wire.Connection, work: Callable[[wire.Connection], Coroutine[Any, Any, T]], name: str
    ) -> T:
        if self._must_listen(connection):
            await self._listen(connection)
        try:
            answer = await self._kept(connection, name, lambda: work(connection))
            if name == LOOK and self._wants_listen and self._wants_writes:
                await self._must_take_writes(connection)
            return answer
        except EXPLAINED as error:
            raise await self._explained(connection, error) from None

    async def _explained(self, connection: wire.Connection, error: psycopg.Error) -> FenceholdError:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return await self._not_here(connection, error)
        if isinstance(error, psycopg.errors.UndefinedTable):
            return await self._not_found(connection, error)
        return await self._denied(connection, error)

    async def _not_found(self, connection: wire.Connection, error: psycopg.Error) -> FenceholdError:
        """Return our error for a missing table: the role may use no schema, or the tables were not made.

        A role that may use no schema sees no table, even if all of them exist.
        """
        found: Rows = [("unknown",)]
        with contextlib.suppress(psycopg.Error):
            table = {"table": self.statements.table}
            found = await (await connection.execute(self.statements["schema_rights"], table)).fetchall()
        if not found and "." not in self.statements.table:
            return faults.no_usable_schema()
        return advised(faults.of_statement(error), self.statements)

    async def _not_here(self, connection: wire.Connection, error: psycopg.Error) -> FenceholdError:
        is_standby = False
        with contextlib.suppress(psycopg.Error):
            _, is_standby = await self._takes_writes(connection)
        return faults.not_here(faults.text_of(error), wire.place_of(connection), is_standby)

    async def _must_take_writes(self, connection: wire.Connection) -> None:
        """Raise Unavailable (read_only) if this server takes no writes.

        Followers (candidates that do not lead) must read on the server that grants leases, because a standby may be
        behind or cut off.
        """
        takes_writes, is_standby = await self._takes_writes(connection)
        if not takes_writes:
            raise faults.not_here("the session is read-only", wire.place_of(connection), is_standby)

    async def _takes_writes(self, connection: wire.Connection) -> tuple[bool, bool]:
        """Return whether the server takes writes, and whether it is a standby."""
        takes_writes, is_standby = await wire.row_of(connection, self.statements["takes_writes"])
        return bool(takes_writes), bool(is_standby)

    async def _kept(self, connection: wire.Connection, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._commits.run(connection, self.statements, name, self.is_pooled, work)

    async def _denied(self, connection: wire.Connection, error: psycopg.Error) -> FenceholdError:
        rights: Rows = []
        with contextlib.suppress(psycopg.Error):
            rights = await (await connection.execute(self.statements["rights_missing"])).fetchall()
        return advised(faults.denied(error, [right for (right,) in rights]), self.statements)

    def _must_listen(self, connection: wire.Connection) -> bool:
        return self._wants_listen and not self.is_pooled and self._listening is not connection

    async def _turn(self, limit_s: float) -> None:
        if not self._lock.locked():
            await self._lock.acquire()  # it is free: a limit would cost more than the lock
            return
        try:
            async with TimeLimit(limit_s):
                await self._lock.acquire()
        except TimeoutError:
            message = "PostgreSQL has not answered an earlier statement on this connection yet; nothing was sent."
            raise Unavailable(message, code="no_answer") from None

    async def _fetch(self, connection: wire.Connection, name: str, params: Mapping[str, Any]) -> Rows:
        cursor = await connection.execute(self.statements[name], params or None)
        return await cursor.fetchall() if cursor.description else []

    async def _ready(self, limit_s: float) -> wire.Connection:
        """Return the open connection; if there is none, wait up to `limit_s` for a new one.

        Raises Unavailable if it is not ready by then. The attempt goes on in the background for the next call.
        """
        if self._connection is not None and not self._connection.closed:
            if not wire.is_gone(self._connection):
                return self._connection
            self._drop()  # it ended while idle, for example by a switchover: nothing was sent, so nothing is uncertain
        if self._connecting is None or self._connecting.done():
            self._connect_errors = []
            self._connecting = asyncio.create_task(self._connect(self._connect_errors))
            self._connecting.add_done_callback(retrieve)
        done, _ = await asyncio.wait([self._connecting], timeout=max(0.0, limit_s))
        if not done:
            raise wire.silent(self._info, limit_s, self._connect_errors)
        task, self._connecting = self._connecting, None
        self._connection = task.result()
        return self._connection

    async def _connect(self, errors: list[Exception]) -> wire.Connection:
        connection = await wire.connect(self._info, wire.CONNECT_LIMIT_S, autocommit=True, errors=errors)
        try:
            own = session_limits.lifted(connection, self.statements, self.on_unread)
            self.is_pooled = not await wire.bounded(connection, own, fixed(wire.CONNECT_LIMIT_S))
            # A pooler runs each statement in any server session: prepared statements and LISTEN would be lost.
            connection.prepare_threshold = None if self.is_pooled else PREPARE_AFTER
            connection.add_notify_handler(lambda notify: self._notify(notify.payload))
            await wire.bounded(connection, self._settle(connection), fixed(wire.CONNECT_LIMIT_S))
        except psycopg.Error as error:
            wire.discard(connection)
            raise faults.of_statement(error) from None
        except BaseException:
            wire.discard(connection)
            raise
        return connection

    async def _settle(self, connection: wire.Connection) -> None:
        """Prepare a new connection for its statements; a subclass adds what it needs."""
        await self._commits.settle(connection, self.statements, self.is_pooled)

    async def _listen(self, connection: wire.Connection) -> None:
        await connection.execute(self.statements["changes"])
        self._listening = connection

    # --- hints ---

    def on_hint(self, hint: Hint) -> None:
        self._hints.append(hint)

    async def listen(self, limit_s: float) -> bool:
        """Start to listen for notifications. Return True once they arrive here, False behind a pooler.

        A connection that is opened later listens too.
        """
        self._wants_listen = True
        connection = self._connection
        if connection is None or connection is not self._listening:
            await self.run("probe", {}, limit_s)
        return not self.is_pooled

    def _notify(self, payload: str) -> None:
        what, _, name = payload.partition(" ")
        for hint in self._hints:
            hint(what, name)

    def _watch(self) -> None:
        """Watch the socket for notifications while no statement runs, and pass on those that have come already."""
        connection = self._connection
        if connection is not None and not connection.closed and self._wants_listen and not self.is_pooled:
            self._watched_fd = connection.fileno()
            asyncio.get_running_loop().add_reader(self._watched_fd, self._readable)
            # One that came together with the last answer is in the driver already: the socket does not become readable.
            while notify := connection.pgconn.notifies():
                self._notify(notify.extra.decode("utf-8", "replace"))

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
                self._notify(notify.extra.decode("utf-8", "replace"))
        except psycopg.Error:
            self._drop()
            self._notify(UNKNOWN)  # notifications may be lost: everybody must look

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
    """A block of work on the session's connection: after any error in it the connection is dropped.

    An error of psycopg leaves the block as one of our errors.
    """

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
