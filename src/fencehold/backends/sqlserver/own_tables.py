"""Tables of a service's own on SQL Server.

One pool of connections runs single batches, another one runs fenced batches, and one connection only reads.

A fenced write is one batch that contains its own transaction and the fence. With several round trips a process that
froze between two statements would keep its locks, and all others would wait.
"""

from __future__ import annotations

from typing import TypeVar

from fencehold.backends.sql.fenced import REFUSED
from fencehold.backends.sql.own_tables import OwnStatements, OwnTablesBase, ReaderBase
from fencehold.backends.sql.steps import awaited
from fencehold.backends.sqlserver import driver, faults
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.own_pool import Pool
from fencehold.backends.sqlserver.schema import SqlServerSchema
from fencehold.model.errors import Unavailable
from fencehold.ports.own_tables import HeldTerm, Row, Statement, Steps

WRITE_LIMIT_S = 10.0  # a batch that waits for a row makes a takeover wait at most this long
LOCK_WAIT_SHARE = 0.5  # of the limit: the rest is for the answer that the row is locked

T = TypeVar("T")


class SqlServerOwnTables(OwnTablesBase):
    dialect = "sqlserver"

    def __init__(self, url: str, package: str, table: str, *, connections: int, fenced: int, name: str) -> None:
        address = Address.of(url)
        statements = OwnStatements(self.dialect, package, table)
        super().__init__(statements, SqlServerSchema(address, statements))
        self._address, self._name = address, name
        self._pool = Pool(address, statements, connections, name)
        self._fenced = Pool(address, statements, fenced, f"{name}-fenced")
        self._pools = [self._pool, self._fenced]

    async def run(self, statement: Statement, limit_s: float) -> list[Row]:
        try:
            return await self._pool.run(statement, limit_s)
        except driver.Error as error:
            raise faults.of_statement(error) from None

    async def _fenced_steps(self, term: HeldTerm, steps: Steps[T]) -> T:
        return await awaited(steps, lambda statement: self._batch(term, statement))

    async def _batch(self, term: HeldTerm, statement: Statement) -> list[Row]:
        """Run one fenced batch and return its rows.

        Raises LeaseLost if the fence refused it, Unavailable (`locked`) if another session kept the row or the lease
        locked.
        """
        term.check()
        limit_s = min(term.remaining_s, WRITE_LIMIT_S)
        fence = {
            "name": term.name, "holder": term.holder_id, "epoch": term.epoch,
            "wait_ms": max(1, int(limit_s * 1000 * LOCK_WAIT_SHARE)),
        }  # fmt: skip
        fenced = Statement(statement.name, {**statement.params, **fence}, statement.may_repeat)
        try:
            found = await self._fenced.run(fenced, limit_s)
        except Unavailable as error:
            if error.code == "busy":
                raise Unavailable(error.message, hint=error.hint, code="locked") from None
            raise
        match found[0].get("verdict") if found else None:
            case "lost":
                raise term.lost(f"{REFUSED}; nothing was written")
            case "busy":
                message = f"Another session held the lock of lease {term.name!r}; nothing was written."
                raise Unavailable(message, code="locked")
        return found

    def reader(self) -> SqlServerReader:
        reader = SqlServerReader(self._address, self._statements, 1, f"{self._name}-read")
        self._pools.append(reader)
        return reader

    async def close(self) -> None:
        for pool in reversed(self._pools):
            await pool.close()


class SqlServerReader(Pool, ReaderBase):
    """Runs statements that only read, on one connection of its own."""
