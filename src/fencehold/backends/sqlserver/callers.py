"""Statements of this library inside a transaction that a caller owns, on SQL Server: the fence and the caller's outbox.

If a statement is refused or fails, the caller's transaction is rolled back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fencehold.backends.sql import wrong_store
from fencehold.backends.sql.callers.connections import (
    NO_PARAMS,
    CallersConnection,
    CallersSyncConnection,
    End,
    Params,
    Rows,
    Run,
    Steps,
)
from fencehold.backends.sql.callers.dialect import Dialect
from fencehold.backends.sql.callers.fence import CallersFence, fence_hint, fence_outside
from fencehold.backends.sql.callers.outbox import CallersOutbox, RunsOwn
from fencehold.backends.sql.fenced import REFUSED, lost
from fencehold.backends.sql.statements import Statements, granting
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.outbox import rows as event_rows
from fencehold.backends.sqlserver.params import bound
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError, Unavailable
from fencehold.model.outbox.new_events import NewEvent

WAIT_MS_MAX = 2**31 - 1
#: How long to wait for the caller's own statement on another thread; after that its connection is closed.
SPOIL_LIMIT_S = 30.0
LOOK_EVERY_S = 0.02
OUTSIDE, ELSEWHERE, FIRST = "outside", "elsewhere", "first"  # verdicts of a batch


class MssqlPython(CallersSyncConnection):
    """The caller's mssql-python connection, in or out of autocommit mode.

    In autocommit mode the caller has run BEGIN TRANSACTION itself. `patience_s`: how long a rollback waits for a
    statement that runs on another thread.
    """

    patience_s = 0.0

    def run(self, name: str, params: Params) -> Rows:
        return batch.rows(self.target, *bound(self.statements.named(name), params))

    def roll_back(self) -> None:
        ends_s = time.monotonic() + self.patience_s
        while not self._is_rolled_back(ends_s):
            time.sleep(LOOK_EVERY_S)
        with suppress(Exception):  # the server has rolled back: this only tells the driver
            self.target.rollback()

    def _is_rolled_back(self, ends_s: float) -> bool:
        """Try to roll back. Return True when that is done, False if it must be tried again.

        It must be tried again if another statement is running on the connection and there is time left to wait for it.
        """
        try:
            self.run("poison", NO_PARAMS)
        except driver.Error as error:
            if time.monotonic() >= ends_s or not faults.is_cursor_open(error):
                raise
            return False
        return True

    def close(self) -> None:
        """Close the connection, which ends its transaction."""
        with suppress(Exception):
            self.target.close()


class SqlServerDialect(Dialect):
    """What differs on SQL Server for work in a caller's transaction.

    Only the server knows whether a transaction is open. A driver may begin a transaction with its first statement; a
    caller may run BEGIN TRANSACTION. So each statement of this library checks on the server whether a transaction is
    open, and writes nothing if none is.
    """

    name = "mssql"
    takes = "Give an mssql-python connection or a SQLAlchemy session or connection"
    takes_as_tx = " (sync or async), or leave tx out."
    begin = "Connect with autocommit=False or run BEGIN TRANSACTION first"
    refused = "rolled back"

    def own(self, target: object, statements: Statements, given: object) -> CallersConnection | None:
        return MssqlPython(target, statements, given) if isinstance(target, driver.Connection) else None

    def poison(self, connection: CallersConnection) -> Steps[None]:
        """Roll the caller's transaction back.

        If the rollback fails (an unread cursor, say), close the connection instead.
        """
        try:
            yield from super().poison(connection)
        except Exception:  # noqa: BLE001 - whatever prevents the rollback
            yield End.CLOSE

    def is_elsewhere(self, error: Exception) -> bool:
        return wrong_store.is_elsewhere(faults.of_callers(error))

    def fault(self, error: Exception, statements: Statements) -> BaseException:
        fault = faults.of_callers(error)
        return granting(fault, statements.init_option) if isinstance(fault, FenceholdError) else fault


class SqlServerFence(CallersFence):
    """Fences a caller's transaction: takes the lease's lock in it and checks the epoch while the lock is held.

    Many writers may hold the lock at the same time; a takeover needs it alone, so a takeover waits for their
    transactions.
    """

    def __init__(self, statements: Statements) -> None:
        super().__init__(SqlServerDialect(), statements)

    def ask(self, connection: CallersConnection, key: TermKey) -> Steps[FenceholdError | None]:
        rows = yield Run("fence", params(key))
        return refused(key, rows, self.outside(connection), elsewhere(key))

    def failure(self, error: BaseException, key: TermKey) -> BaseException:
        """Return the error to raise for `error`: our error for a driver's error, the error itself for any other.

        The caller then makes the transaction fail: with XACT_ABORT off the server would leave it open after an error.
        """
        fault = faults.of_callers(error)
        return elsewhere(key) if wrong_store.is_elsewhere(fault) else fault

    async def spoil(self, given: object) -> None:
        """Roll back the transaction on the caller's connection `given`.

        A blocking connection is rolled back on a thread, because another thread may be running a statement on it.
        """
        connection = self.connection(given)
        if not isinstance(connection, CallersSyncConnection):
            await connection.perform(self.spoiled)
            return
        if isinstance(connection, MssqlPython):
            connection.patience_s = SPOIL_LIMIT_S
        await aside(lambda: connection.drive(self.spoiled))


class SqlServerCallersOutbox(CallersOutbox):
    def __init__(self, statements: Statements, run: RunsOwn) -> None:
        super().__init__(SqlServerDialect(), statements, run)

    def batch(self, events: Sequence[NewEvent], outbox_id: str) -> Sequence[Params]:
        return [event_rows.add_params(events, within=outbox_id)]

    def ids_added(self, connection: CallersConnection, batch: Sequence[Params], answers: Sequence[Rows]) -> list[str]:
        [rows] = answers
        self._must_be_written(connection, rows)
        return [tracking_id for _, tracking_id in rows]

    def is_first(self, connection: CallersConnection, rows: Rows) -> bool:
        self._must_be_written(connection, rows)
        [(verdict,)] = rows
        return bool(verdict == FIRST)

    def _must_be_written(self, connection: CallersConnection, rows: Rows) -> None:
        """Raise ConfigurationError if the answer says that nothing was written: no transaction, or another database.

        An answer without rows is no error: all events were known already.
        """
        for verdict, *_ in rows[:1]:
            if verdict == ELSEWHERE:
                raise self.elsewhere()
            if verdict == OUTSIDE:
                raise self.outside(connection)


async def aside(work: Callable[[], object]) -> None:
    """Run `work` on a daemon thread and wait for its end. A daemon thread does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        with suppress(Exception):
            work()
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="fencehold-mssql-spoil", daemon=True).start()
    await done.wait()


def params(key: TermKey) -> dict[str, Any]:
    return {
        "name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id,
        "wait_ms": wait_ms(key),
    }  # fmt: skip


def wait_ms(key: TermKey) -> int:
    """Return how many milliseconds to wait for the lease's lock: half the lease, so that part of the term is left."""
    return min(WAIT_MS_MAX, max(1, int(key.lease_s * 500)))


def elsewhere(key: TermKey) -> ConfigurationError:
    return wrong_store.of_fence(key, outcome=wrong_store.ROLLED_BACK)


def refused(
    key: TermKey, rows: Rows, outside: ConfigurationError, elsewhere: ConfigurationError | None = None
) -> FenceholdError | None:
    """Return the error that the rows of the statement `fence` or `enter` stand for. None: the fence holds.

    The fence holds if the lock was taken and the lease is this term's and live. `outside`: the error for a connection
    that is in no transaction. `elsewhere`: the error for a connection to another database than the store's; None for
    the store's own connection.
    """
    if not rows:
        return out_of_step()
    open_transactions, locked, is_held, is_ours = rows[0]
    if not open_transactions:
        return outside
    if not is_ours and elsewhere is not None:
        return elsewhere
    if not is_held:
        return lost(key, f"{REFUSED}; nothing was written")
    if locked < 0:
        return Unavailable(
            f"Lease {key.name!r} epoch {key.epoch}: another session held its lock for {wait_ms(key)} ms; nothing was "
            "written.",
            code="busy",
        )
    return None


def outside() -> ConfigurationError:
    """Return the error for a connection of the store's own that is in no transaction."""
    return fence_outside(fence_hint(SqlServerDialect()))


def out_of_step() -> ConfigurationError:
    """Return the error for a connection that gives each answer only with the next statement.

    The driver's provider mssql-odbc does that when the connection is not in autocommit mode.
    """
    return ConfigurationError(
        "The driver gave no answer to the fence; on this connection answers may be another statement's. Close it.",
        hint="Use the driver's other provider: install libltdl7, libkrb5-3 and libgssapi-krb5-2 (docs/sqlserver.md).",
        code="driver_out_of_step",
    )
