"""The fence on SQL Server: takes the lease's lock in the writer's transaction, and checks the epoch while it is held.

Many writers may hold the lock at the same time; a takeover needs it alone, so a takeover waits for the writers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

from fencehold.backends.sql.fenced import FencedTerm, guard_params
from fencehold.backends.sql.statements import Statements, pyformat
from fencehold.backends.sqlserver.address import Address
from fencehold.backends.sqlserver.callers import SqlServerFence
from fencehold.backends.sqlserver.fenced import BlockingTransaction, FencedLine, SqlServerTransaction
from fencehold.backends.sqlserver.line import Line
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import Unavailable, Uncertain
from fencehold.ports.fence import GuardText, RemainingS

IDLE_LINES_MAX = 4

T = TypeVar("T")


class SqlServerFences:
    """The three ways to fence a write on SQL Server.

    `transaction` uses connections of its own, each with a thread; `fence` and `guard` use the caller's connection.
    """

    def __init__(self, address: Address, statements: Statements) -> None:
        self._address = address
        self._statements = statements
        self._callers = SqlServerFence(statements)
        self._guard = pyformat(statements.named("guard"))
        self._idle: list[Line] = []

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[SqlServerTransaction]:
        tx = await self._begin(FencedTerm(key, remaining_s))
        try:
            yield tx
            await tx.commit()
        except BaseException:
            tx.line.leave()
            raise
        self._checkin(tx.line)

    @contextmanager
    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> Iterator[BlockingTransaction]:
        line = Line(self._address, keeps_open=True, name="fencehold-mssql-tx")
        tx = BlockingTransaction(FencedLine(line, self._statements, FencedTerm(key, remaining_s)))
        try:
            tx.enter()
            yield tx
            tx.commit()
        finally:
            line.leave()

    async def _begin(self, term: FencedTerm) -> SqlServerTransaction:
        """Return a transaction that is open and fenced.

        Raises our error if the fence is refused or the server does not answer. A connection kept from an earlier
        transaction may have died unnoticed. It is then replaced by another one and the begin is repeated, because
        nothing was written on it.
        """
        while True:
            line, was_kept = self._checkout(term)
            tx = SqlServerTransaction(FencedLine(line, self._statements, term))
            try:
                await tx.enter()
                return tx
            except BaseException as error:
                line.leave()
                has_died = isinstance(error, Unavailable | Uncertain) and error.code != "busy"
                if not (was_kept and has_died):
                    raise

    def _checkout(self, term: FencedTerm) -> tuple[Line, bool]:
        """Return a connection with its thread, and True if an earlier transaction used it, False if it is new.

        Raises LeaseLost if the term is over.
        """
        term.check()
        if self._idle:
            return self._idle.pop(), True
        return Line(self._address, keeps_open=True, name="fencehold-mssql-tx"), False

    def _checkin(self, line: Line) -> None:
        if len(self._idle) < IDLE_LINES_MAX:
            self._idle.append(line)
        else:
            line.leave()

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().leave()

    # --- the caller's own connection ---

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        return self._callers.fence(target, key, over)

    async def spoil(self, target: object) -> None:
        with suppress(Exception):
            await self._callers.spoil(target)

    def guard(self, key: TermKey) -> GuardText:
        values = {"name": key.name, "holder": key.holder_id, "epoch": key.epoch, "lease_id": key.lease_id}
        return GuardText(self._guard, self._statements.named("guard"), guard_params(values))
