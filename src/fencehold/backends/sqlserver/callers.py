"""Our work in a transaction that a caller owns, on SQL Server: a refusal rolls it back, and so does an error."""

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
    """An mssql-python connection: in autocommit with the caller's own BEGIN TRANSACTION, or not in autocommit.

    `patience_s`: how long a rollback waits for a statement that runs on another thread.
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
        """Try to roll back. False if another statement is under way, and there is time left to wait for it."""
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
    """Only the server knows whether a transaction is open.

    A driver may begin one with its first statement, a caller with a BEGIN TRANSACTION of its own. So the statements
    check it, and write nothing outside of one.
    """

    name = "mssql"
    takes = "Give an mssql-python connection or a SQLAlchemy session or connection"
    takes_as_tx = " (sync or async), or leave tx out."
    begin = "Connect with autocommit=False or run BEGIN TRANSACTION first"
    refused = "rolled back"

    def own(self, target: object, statements: Statements, given: object) -> CallersConnection | None:
        return MssqlPython(target, statements, given) if isinstance(target, driver.Connection) else None

    def poison(self, connection: CallersConnection) -> Steps[None]:
        """Roll back. If that fails (for example: a cursor is unread), end the connection."""
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
    """The fence is a lock that only a takeover takes exclusively, and the epoch read while it is held."""

    def __init__(self, statements: Statements) -> None:
        super().__init__(SqlServerDialect(), statements)

    def ask(self, connection: CallersConnection, key: TermKey) -> Steps[FenceholdError | None]:
        rows = yield Run("fence", params(key))
        return refused(key, rows, self.outside(connection), elsewhere(key))

    def failure(self, error: BaseException, key: TermKey) -> BaseException:
        """Return the error to raise. The transaction must fail for any error.

        With XACT_ABORT off the server would leave it open.
        """
        fault = faults.of_callers(error)
        return elsewhere(key) if wrong_store.is_elsewhere(fault) else fault

    async def spoil(self, given: object) -> None:
        """Roll a blocking connection back on a thread, because it may be running a statement."""
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
        """Raises ConfigurationError if the verdict says that nothing was. No rows: all events were known."""
        for verdict, *_ in rows[:1]:
            if verdict == ELSEWHERE:
                raise self.elsewhere()
            if verdict == OUTSIDE:
                raise self.outside(connection)


async def aside(work: Callable[[], object]) -> None:
    """Run `work` on a daemon thread, which does not keep the program from ending, and wait for it."""
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
    """Return half the lease: after a longer wait for a lock little of the term is left."""
    return min(WAIT_MS_MAX, max(1, int(key.lease_s * 500)))


def elsewhere(key: TermKey) -> ConfigurationError:
    return wrong_store.of_fence(key, outcome=wrong_store.ROLLED_BACK)


def refused(
    key: TermKey, rows: Rows, outside: ConfigurationError, elsewhere: ConfigurationError | None = None
) -> FenceholdError | None:
    """Return the error for the rows of `fence` or `enter`; None if the lock is held and the lease is ours and live.

    `outside`: for a connection in no transaction. `elsewhere`: for one to another database; None on the store's own.
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
    """Return the error for a connection on which each answer comes only with the next statement.

    Seen with the driver's provider mssql-odbc outside of autocommit.
    """
    return ConfigurationError(
        "The driver gave no answer to the fence; on this connection answers may be another statement's. Close it.",
        hint="Use the driver's other provider: install libltdl7, libkrb5-3 and libgssapi-krb5-2 (docs/sqlserver.md).",
        code="driver_out_of_step",
    )
