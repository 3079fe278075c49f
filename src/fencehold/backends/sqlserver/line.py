"""A `Line`: one connection on a thread of its own, because the driver's calls cannot be interrupted.

If the server is dead, a call returns only when the network gives up, or never. So no caller waits for the thread: a
call that has not returned in time is abandoned together with its thread and its connection, and the next call gets a
new line. The thread closes the connection if the call ever returns.

The threads are daemons, so that they do not keep a program from ending. But stopping a thread inside the driver crashes
the process or delays its end. So when the program ends, the calls under way are ended first.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fencehold.backends.sqlserver import driver, faults, sockets
from fencehold.backends.sqlserver.address import Address
from fencehold.model.errors import ConfigurationError

CONNECT_LIMIT_S = 10
EXIT_GRACE_S = 1.0
EXIT_LIMIT_S = 5.0

T = TypeVar("T")
#: On every new connection. XACT_ABORT: an error inside a batch undoes the whole of its transaction.
SETTINGS = "SET XACT_ABORT ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET IMPLICIT_TRANSACTIONS {};"
#: On connections that run no statements of the caller's: errors are recognized by their English text.
LANGUAGE = " SET LANGUAGE us_english;"
OPEN_TRANSACTIONS = "SELECT @@TRANCOUNT AS open_transactions"


class Line:
    """A connection and the thread that uses it. Work given to `submit` runs on this thread, one after another.

    The first call connects. If that fails, nothing was sent, and the error is one of ours; later errors are the
    driver's. With `keeps_open` every statement is in a transaction, which the server begins by itself if needed, and
    only an explicit commit commits it.
    """

    def __init__(self, address: Address, *, keeps_open: bool = False, name: str = "fencehold-mssql") -> None:
        self._address = address
        self._keeps_open = keeps_open
        self.settings = SETTINGS.format("ON") if keeps_open else SETTINGS.format("OFF") + LANGUAGE
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._connection: driver.Connection | None = None
        self._is_left = False
        self._connecting_since_s: float | None = None
        self.lock_timeout_ms = -1
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._address.port

    @property
    def is_connecting(self) -> bool:
        """Return whether the thread is connecting, and not for too long. If so, a later call may use the connection."""
        since_s = self._connecting_since_s
        return since_s is not None and time.monotonic() - since_s < CONNECT_LIMIT_S

    @property
    def connection(self) -> driver.Connection:
        """Return the driver's own connection. It exists after the first call; use it in one thread at a time."""
        assert self._connection is not None, "asked for only after the first call"
        return self._connection

    def submit(self, work: Callable[[Line], T]) -> Future[T]:
        """Make the thread call `work(line)`, and return a Future of its result.

        The Future also gets what `work` raises.
        """
        future: Future[T] = Future()

        def job() -> None:
            try:
                self._open()
            except BaseException as error:  # noqa: BLE001 - raised in the caller, from the Future
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
                return
            if not future.set_running_or_notify_cancel():
                return  # the caller cancelled it, and relies on nothing being sent
            try:
                future.set_result(work(self))
            except BaseException as error:  # noqa: BLE001 - raised in the caller, from the Future
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def leave(self) -> None:
        """Never use this line again.

        The thread closes the connection when its present call returns, which may be never.
        """
        self._is_left = True
        self._jobs.put(None)

    def _open(self) -> None:
        if self._connection is not None:
            return
        self._connecting_since_s = time.monotonic()
        try:
            self._connection = self._connected()
        except driver.Error as error:
            raise faults.of_connect(error) from None
        finally:
            self._connecting_since_s = None
        if self._keeps_open:
            driver.without_ends(self._connection)

    def _connected(self) -> driver.Connection:
        connection = driver.connect(self._address, limit_s=CONNECT_LIMIT_S)
        try:
            with contextlib.closing(connection.cursor()) as cursor:
                cursor.execute(self.settings)
            with contextlib.closing(connection.cursor()) as cursor:
                [(open_transactions,)] = cursor.execute(OPEN_TRANSACTIONS).fetchall()
                if open_transactions:
                    raise inside_transaction()
        except BaseException:
            with contextlib.suppress(driver.Error):
                connection.close()
            raise
        return connection

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._is_left:
            job()
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
        _running.discard(self)

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, at most for `timeout_s`."""
        self._thread.join(timeout_s)


_running: set[Line] = set()
if hasattr(os, "register_at_fork"):  # only the parent has the threads, and may end their calls
    os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _end_all() -> None:
    """At the program's end: give the calls under way a moment to return, then shut down their sockets.

    Otherwise the driver would wait for them.
    """
    began_s = time.monotonic()
    for line in list(_running):
        line.leave()
    while _running and (waited_s := time.monotonic() - began_s) < EXIT_LIMIT_S:
        for line in list(_running):
            if waited_s > EXIT_GRACE_S:
                sockets.cut_all(line.port)
            line.join(0.1)


def inside_transaction() -> ConfigurationError:
    """Return the error for a new connection that is inside a transaction already.

    Each batch commits its own transaction. Inside an outer transaction that would commit nothing, so a positive answer
    would be false.
    """
    return ConfigurationError(
        "The driver gave a new connection that is inside a transaction; what is written on it would not be kept.",
        hint="The driver's pool does that with some versions: call mssql_python.pooling(enabled=False) before the "
        "first connection, or leave the choice to fencehold.",
        code="pooled_connection",
    )
