"""The fence in a transaction that the caller owns: mssql-python connections, SQLAlchemy sessions, sync and async.

A refusal rolls the caller's transaction back, and so does an error: nothing that it wrote before can be committed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from fencehold.backends.sql import begin_hints, wrong_store
from fencehold.backends.sql import caller_session as sql_session
from fencehold.backends.sql.statements import Statements
from fencehold.backends.sqlserver import batch, driver, faults
from fencehold.backends.sqlserver.params import bound
from fencehold.model.election.leases import TermKey
from fencehold.model.errors import ConfigurationError, FenceholdError, LeaseLost, Unavailable
from fencehold.ports.fence import DONE

DIALECT = "mssql"  # as SQLAlchemy spells it
WAIT_MS_MAX = 2**31 - 1
#: How long to wait for the caller's own statement on another thread; after that its connection is closed.
SPOIL_LIMIT_S = 30.0
LOOK_EVERY_S = 0.02

Rows = list[tuple[Any, ...]]


def params(key: TermKey) -> dict[str, Any]:
    return {
        "name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id,
        "wait_ms": wait_ms(key),
    }  # fmt: skip


def wait_ms(key: TermKey) -> int:
    """Return half the lease: after a longer wait for a lock little of the term is left."""
    return min(WAIT_MS_MAX, max(1, int(key.lease_s * 500)))


def lost(key: TermKey, why: str) -> LeaseLost:
    return LeaseLost(f"Lease {key.name!r} epoch {key.epoch}: {why}.", name=key.name, epoch=key.epoch)


def fence(statements: Statements, target: object, key: TermKey, over: bool) -> Awaitable[None]:
    """`over`: the term has already ended here, so the store is not asked and the transaction is only made to fail."""
    return begin_hints.advised(target, lambda: _fence(statements, target, key, over))


def _fence(statements: Statements, target: object, key: TermKey, over: bool) -> Awaitable[None]:
    target = sql_session.unwrapped(target, DIALECT)
    if isinstance(target, driver.Connection):
        _fence_sync(_PlainDoor(target, statements), key, over)
        return DONE
    if sql_session.is_sqlalchemy(target, DIALECT):
        if sql_session.is_async(target):
            return _fence_async(_AsyncSessionDoor(target, statements), key, over)
        _fence_sync(_SessionDoor(target, statements), key, over)
        return DONE
    raise ConfigurationError(
        f"term.fence() cannot use a {sql_session.kind_of(target)}.",
        hint="Give an mssql-python connection or a SQLAlchemy session or connection.",
        code="bad_connection",
    )


async def spoil(statements: Statements, target: Any) -> None:
    """After this, nothing that was begun on `target` and not yet committed can be committed.

    A blocking connection is rolled back on a thread, because it may be running a statement.
    """
    target = sql_session.unwrapped(target, DIALECT)
    if sql_session.is_async(target):
        await _AsyncSessionDoor(target, statements).poison()
    elif isinstance(target, driver.Connection):
        await _aside(lambda: _PlainDoor(target, statements).poison(SPOIL_LIMIT_S))
    else:
        await _aside(_SessionDoor(target, statements).poison)


async def _aside(work: Callable[[], object]) -> None:
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


class _PlainDoor:
    """An mssql-python connection: in autocommit with the caller's own BEGIN TRANSACTION, or not in autocommit."""

    def __init__(self, target: driver.Connection, statements: Statements) -> None:
        self._target, self._statements = target, statements

    def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        return batch.rows(self._target, *bound(self._statements.named(name), values))

    def poison(self, patience_s: float = 0.0) -> None:
        """Roll back. If that fails (for example: a cursor is unread), close the connection, which ends its transaction.

        With patience, first wait for a statement that runs on another thread, if there is one.
        """
        ends_s = time.monotonic() + patience_s
        with suppress(Exception):
            try:
                while not self._is_rolled_back(ends_s):
                    time.sleep(LOOK_EVERY_S)
            except driver.Error:
                self._target.close()
            else:
                self._target.rollback()

    def _is_rolled_back(self, ends_s: float) -> bool:
        try:
            self.run("poison", {})
        except driver.Error as error:
            if time.monotonic() >= ends_s or not faults.is_cursor_open(error):
                raise
            return False
        return True


class _SessionDoor:
    """A SQLAlchemy session or connection, with any driver."""

    def __init__(self, target: Any, statements: Statements) -> None:
        self._target, self._statements = target, statements

    def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        return sql_session.run(self._target, self._statements.named(name), values)

    def poison(self) -> None:
        try:
            sql_session.roll_back_all(self._target)
        except Exception:
            self._target.invalidate()
            raise


class _AsyncSessionDoor:
    def __init__(self, target: Any, statements: Statements) -> None:
        self._target, self._statements = target, statements

    async def run(self, name: str, values: Mapping[str, Any]) -> Rows:
        return await sql_session.run_async(self._target, self._statements.named(name), values)

    async def poison(self) -> None:
        try:
            await sql_session.roll_back_all_async(self._target)
        except Exception:
            await self._target.invalidate()
            raise


def _fence_sync(door: _PlainDoor | _SessionDoor, key: TermKey, over: bool) -> None:
    refusal: FenceholdError | None = lost(key, "the term is over; this transaction was rolled back")
    if not over:
        try:
            refusal = refused(key, door.run("fence", params(key)))
        except BaseException as error:
            with suppress(Exception):
                door.poison()
            raise _of_fence(error, key) from error
    if refusal is not None:
        door.poison()
        raise refusal


async def _fence_async(door: _AsyncSessionDoor, key: TermKey, over: bool) -> None:
    refusal: FenceholdError | None = lost(key, "the term is over; this transaction was rolled back")
    if not over:
        try:
            refusal = refused(key, await door.run("fence", params(key)))
        except BaseException as error:
            with suppress(Exception):
                await door.poison()
            raise _of_fence(error, key) from error
    if refusal is not None:
        await door.poison()
        raise refusal


def _of_fence(error: BaseException, key: TermKey) -> BaseException:
    fault = faults.of_callers(error)
    return wrong_store.of_fence(key, outcome=wrong_store.ROLLED_BACK) if wrong_store.is_elsewhere(fault) else fault


def refused(key: TermKey, rows: Rows, own: bool = False) -> FenceholdError | None:
    """Return the error for the rows of `fence` or `enter`; None if the lock is held and the lease is ours and live.

    `own`: the connection is the store's own, which cannot lead to another database.
    """
    if not rows:
        return out_of_step()
    open_transactions, locked, is_held, is_ours = rows[0]
    if not open_transactions:
        return outside_transaction()
    if not is_ours and not own:
        return wrong_store.of_fence(key, outcome=wrong_store.ROLLED_BACK)
    if not is_held:
        return lost(key, "the store refused the fence: it has expired or another holds it; nothing was written")
    if locked < 0:
        return Unavailable(
            f"Lease {key.name!r} epoch {key.epoch}: another session held its lock for {wait_ms(key)} ms; nothing was "
            "written.",
            code="busy",
        )
    return None


def out_of_step() -> ConfigurationError:
    """Seen with the driver's provider mssql-odbc outside of autocommit: each answer comes with the next statement."""
    return ConfigurationError(
        "The driver gave no answer to the fence; on this connection answers may be another statement's. Close it.",
        hint="Use the driver's other provider: install libltdl7, libkrb5-3 and libgssapi-krb5-2 (docs/sqlserver.md).",
        code="driver_out_of_step",
    )


def outside_transaction() -> ConfigurationError:
    return ConfigurationError(
        "term.fence() needs an open transaction: in autocommit its lock would be gone before your write.",
        hint="Connect with autocommit=False or run BEGIN TRANSACTION first, then fence, then write.",
        code="fence_outside_transaction",
    )
