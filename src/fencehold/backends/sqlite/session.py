"""One connection to the file, on a thread of its own. Every write runs between BEGIN IMMEDIATE and COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from fencehold.backends.sql.abandoned import retrieve
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlite import faults
from fencehold.backends.sqlite.file import rights as file_rights
from fencehold.backends.sqlite.file.identity import OpenFile, Replaced, cut_off, mixed
from fencehold.model.errors import Uncertain
from fencehold.ports.fact_table import StoreFacts
from fencehold.ports.facts import FactSink

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Mode = Literal["ro", "rw", "rwc"]

NOT_UTF8 = "Could not decode to UTF-8"  # part of the driver's message
ANSWER_SLACK_S = 1.0  # beyond the busy timeout, for the disk itself


class Session:
    """One connection to the file, on a thread of its own; opened when first needed.

    Every call ends within its limit plus a second, even if the disk hangs: it then raises Uncertain.
    """

    def __init__(
        self,
        path: str,
        prefix: str = "fencehold-sqlite",
        statements: Statements | None = None,
        facts: FactSink | None = None,
    ) -> None:
        self.path = path
        self._statements = statements
        self._facts = facts
        # Its own thread: on the shared default pool, callers waiting for this store can occupy every slot, and the
        # store then never runs.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=prefix)
        self._connection: sqlite3.Connection | None = None
        self._file: OpenFile | None = None
        self._is_closed = False

    async def write(self, work: Work[T], limit_s: float, mode: Mode = "rw") -> T:
        """Return the result of `work`, which is run in a write transaction: committed whole, or not at all."""
        return await self.call(lambda: self._write(work, limit_s, mode), limit_s)

    async def read(self, work: Work[T], limit_s: float) -> T:
        return await self.call(lambda: work(self.connection(limit_s)), limit_s)

    async def call(self, work: Callable[[], T], limit_s: float) -> T:
        """Return the result of `work`, which is run on the session's thread.

        If the caller is cancelled, `work` still runs to its end there. A second after the limit this raises Unavailable
        (busy) if `work` had not begun, because the thread was busy with other calls: it is then never run. It raises
        Uncertain (no_answer) if `work` had begun.
        """
        task = self._thread.submit(self._sorted, work)
        future = asyncio.wrap_future(task)
        future.add_done_callback(retrieve)
        done, _ = await asyncio.wait([future], timeout=limit_s + ANSWER_SLACK_S)
        if not done:
            if task.cancel():
                raise faults.behind_others(self.path, limit_s)
            raise Uncertain(f"{self.path} gave no answer within {limit_s:.1f} s.", code="no_answer")
        return future.result()

    def connection(self, limit_s: float, mode: Mode = "rw") -> sqlite3.Connection:
        """Return the connection to the file that is at the path now; open it if needed.

        Call it on the session's thread. The connection waits for locks no longer than the limit.
        """
        if self._connection is not None:
            self._leave_replaced()
        if self._connection is None:
            file = OpenFile(self.path)  # before opening: a replacement from now on is noticed
            self._connection = connect(self.path, mode, limit_s)
            self._file = file if file.is_there else OpenFile(self.path)
        self._connection.execute(f"PRAGMA busy_timeout = {max(1, int(limit_s * 1000))}")
        return self._connection

    @property
    def opened(self) -> sqlite3.Connection | None:
        """The connection if it is open, else None. It is not checked whether its file is still the one at the path."""
        return self._connection

    def must_be_in_place(self) -> None:
        """Raise Unavailable if another file is at the path now; call it before a commit.

        The commit would go into the old file, which nobody reads any more.
        """
        if self._file is not None and (found := self._file.replaced()):
            self._leave(found)
            raise cut_off(found)

    def _must_have_stayed(self) -> None:
        """Raise Uncertain if another file is at the path now: the commit may have gone into the old file."""
        if self._file is not None and (found := self._file.replaced()):
            self._leave(found)
            raise Uncertain(f"{found} during a write, which may be in the file before.", code="file_replaced")

    def _leave_replaced(self) -> None:
        """Close the connection if the file it has open is not at the path any more.

        Raises ConfigurationError if side files of the old file are still there, Unavailable if a transaction was open.
        """
        assert self._file is not None, "set with the connection"
        if found := self._file.replaced():
            was_open = self._connection is not None and self._connection.in_transaction
            if found.left:  # it stays open, unused, so that no other file gets the identity of the old files
                self.roll_back()
                raise mixed(found)
            self._leave(found)
            if was_open:
                raise cut_off(found)

    def _leave(self, found: Replaced) -> None:
        self.roll_back()
        if found.left or self._connection is None:
            return
        self._connection.close()
        self._connection = self._file = None
        if self._facts is not None:
            StoreFacts(self._facts).file_replaced(detail=f"{found}; from now on what is there is used")

    def _write(self, work: Work[T], limit_s: float, mode: Mode) -> T:
        connection = self.connection(limit_s, mode)
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise
        self._must_have_stayed()  # after the commit, so that nobody waits for the lock meanwhile
        return result

    def roll_back(self) -> None:
        """Roll back if a transaction is open. Call it on the session's thread only."""
        if self._connection is not None and self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _sorted(self, work: Callable[[], T]) -> T:
        try:
            return self._readably(work)
        except sqlite3.Error as error:
            raise faults.of_statement(error, self.path, self._statements) from error

    def _readably(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. If a text in a row is not UTF-8, run `work` again, with such bytes as escapes.

        One broken text must not make all other rows unreadable.
        """
        try:
            return work()
        except sqlite3.OperationalError as error:
            if self._connection is None or NOT_UTF8 not in str(error):
                raise
            self._connection.text_factory = _escaped  # until this connection closes; only now, as it is slower
            return work()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True

        def end() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        await self.call(end, 1.0)
        self._thread.shutdown(wait=False)


def connect(path: str, mode: Mode, limit_s: float) -> sqlite3.Connection:
    """Return a new connection that is in autocommit, so that only our code begins transactions.

    Only the mode "rwc" makes the file. The connection uses `synchronous = FULL`, so that what is committed survives a
    loss of power: with less, a file in WAL mode loses its last commits, and an epoch could be granted twice.
    """
    file_rights.check(path)
    uri = f"file:{quote(path)}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=limit_s)
    try:
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def single(connection: sqlite3.Connection, sql: str, params: Mapping[str, Any] | tuple[()] = ()) -> Any:
    """Return the value of a statement that has one row with one column."""
    (value,) = connection.execute(sql, params).fetchone()
    return value


def _escaped(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
