"""One connection on a thread of its own.

The driver's calls cannot be interrupted: on a dead peer they return when the network gives up, if ever. So nobody waits
for the thread. A call that is not back in time is left behind with its thread and its connection, which the thread
closes should it ever come back; the next call gets a new line. As daemons the threads keep no program from ending.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from fencehold.backends.sqlserver import driver
from fencehold.backends.sqlserver.address import Address

CONNECT_LIMIT_S = 10

T = TypeVar("T")
Work = Callable[[driver.Connection], T]

#: On every new connection. XACT_ABORT: an error inside a batch undoes the whole of its transaction.
SETTINGS = "SET XACT_ABORT ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"


class Line:
    """`is_open` turns True when the connection is made: what fails before it was never sent."""

    def __init__(self, address: Address, *, autocommit: bool = True, name: str = "fencehold-mssql") -> None:
        self._address = address
        self._autocommit = autocommit
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._connection: driver.Connection | None = None
        self._is_left = False
        self.is_open = False
        self.lock_timeout_ms = -1
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_left(self) -> bool:
        return self._is_left

    @property
    def connection(self) -> driver.Connection:
        """The driver's own, once open; for one thread at a time."""
        assert self._connection is not None, "asked for only after the first call"
        return self._connection

    def submit(self, work: Work[T]) -> Future[T]:
        """`work(connection)` in its turn on the thread; the first call connects."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work(self._opened())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                future.set_exception(error)
            else:
                future.set_result(result)

        self._jobs.put(job)
        return future

    def leave(self) -> None:
        """Never used again. The thread closes the connection as soon as it is free, which may be never."""
        self._is_left = True
        self._jobs.put(None)

    def _opened(self) -> driver.Connection:
        if self._connection is None:
            connection = driver.connect(self._address, autocommit=self._autocommit, limit_s=CONNECT_LIMIT_S)
            self._connection = connection
            with contextlib.closing(connection.cursor()) as cursor:
                cursor.execute(SETTINGS)
            if not self._autocommit:
                connection.rollback()
            self.is_open = True
        return self._connection

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._is_left:
            job()
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
