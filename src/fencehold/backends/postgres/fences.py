"""The fence on PostgreSQL: a lock (FOR KEY SHARE) on the lease row inside the transaction that it protects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from fencehold.backends.postgres import callers, faults, wire
from fencehold.backends.postgres.blocking import (
    GONE_HINT,
    BlockingTransaction,
    blocking_transaction,
    must_not_have_failed,
)
from fencehold.backends.postgres.commits import Commits, not_replicated
from fencehold.backends.sql.fenced import (
    BEFORE_STATEMENT,
    REFUSED,
    UNDER_WAY,
    FencedTerm,
    fence_gone,
    guard_params,
    lost,
)
from fencehold.backends.sql.statements import Statements
from fencehold.model.election.rules import TermKey
from fencehold.model.errors import Unavailable
from fencehold.ports.fence import GuardText, Params, RemainingS
from fencehold.ports.time_limit import TimeLimit, fixed

IDLE_CONNECTIONS_MAX = 4
ROLLBACK_LIMIT_S = 2.0

T = TypeVar("T")


class PostgresTransaction:
    """A fenced transaction that is open. `connection` is psycopg's own.

    `execute` raises LeaseLost once the term is over; a statement on `connection` itself is not checked.
    """

    def __init__(self, connection: wire.Connection, term: FencedTerm) -> None:
        self.connection = connection
        self.mark = callers.mark()
        self._term = term

    @property
    def limit_s(self) -> float:
        """Half of the lease, in seconds: the server's limit for each statement and each pause of this transaction."""
        return int(callers.limit_ms(self._term.key)) / 1000

    async def execute(self, statement: Any, params: Params = None) -> psycopg.AsyncCursor[Any]:
        return await self.run(self.connection.execute(statement, params))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._term.remaining_s() <= 0:
            work.close()
            raise lost(self._term.key, BEFORE_STATEMENT)
        try:
            return await wire.bounded(self.connection, work, self._term.remaining_s)
        except psycopg.Error as error:
            if not faults.is_connection_lost(error):
                raise
            self._term.check(UNDER_WAY)
            raise Unavailable(
                "The connection broke inside the transaction; nothing was committed: "
                f"{faults.of_statement(error).message}",
                code="connection_lost",
            ) from error


class PostgresFences:
    """Makes fences: `transaction` uses a connection of ours; `fence` and `guard` serve a connection of the caller's."""

    def __init__(self, info: str, statements: Statements, commits: Commits | None = None) -> None:
        self._info = info
        self._statements = statements
        self._commits = commits or Commits()
        self._callers = callers.PostgresFence(statements, self._commits)
        self._idle: list[tuple[asyncio.AbstractEventLoop, wire.Connection]] = []

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[PostgresTransaction]:
        term = FencedTerm(key, remaining_s)
        tx = await self._begin(term)
        connection = tx.connection
        try:
            yield tx
            await self._commit(tx, term)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) or not await self._rolled_back(connection):
                wire.discard(connection)
            else:
                self._checkin(connection)
            raise
        except BaseException:
            wire.discard(connection)
            raise
        self._checkin(connection)

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[BlockingTransaction]:
        term = FencedTerm(key, remaining_s)
        return blocking_transaction(
            self._info, term, lambda connection: self._fence_blocking(connection, key), self._committed_blocking
        )

    async def _begin(self, term: FencedTerm) -> PostgresTransaction:
        """Return a transaction that is open and fenced. Raises LeaseLost if the store refuses the fence.

        A connection kept from an earlier transaction may have died unnoticed. It is then replaced by another one, which
        is safe because nothing was written yet.
        """
        while True:
            connection, was_kept = await self._checkout(term)
            tx = PostgresTransaction(connection, term)
            try:
                await self._enter(tx, term.key)
                return tx
            except Unavailable:
                wire.discard(connection)
                if not was_kept:
                    raise
            except BaseException:
                wire.discard(connection)
                raise

    async def _enter(self, tx: PostgresTransaction, key: TermKey) -> None:
        try:
            params = {**callers.params(key), "mark": tx.mark, "own": True, "sync_commit": self._commits.sync_commit}
            cursor = await tx.run(tx.connection.execute(self._statements["fence"], params))
            epoch, _, standbys = await cursor.fetchone() or (None, None, "")
            if epoch is None:
                raise lost(key, REFUSED)
            self._commits.fenced(standbys)
        except psycopg.Error as error:
            raise callers.of_fence(error, key) from error

    async def _commit(self, tx: PostgresTransaction, term: FencedTerm) -> None:
        must_not_have_failed(tx.connection, "async with")
        await self._still_fenced(tx)
        try:
            await wire.bounded(tx.connection, tx.connection.commit(), term.remaining_s)
        except psycopg.Error as error:
            if faults.is_connection_lost(error):
                raise faults.of_statement(error) from error
            raise  # for example a deferred constraint: the caller's own error; nothing was written
        await self._committed(tx, term.remaining_s)

    async def _committed(self, tx: PostgresTransaction, remaining_s: RemainingS) -> None:
        """Check after the commit that it is on a standby too, if the store requires that.

        Raises Uncertain (not_replicated) if it may not be, also if the server does not answer this check.
        """
        asked = self._commits.committed(tx.connection, self._statements)
        try:
            await wire.bounded(tx.connection, asked, remaining_s)
        except psycopg.Error:
            raise not_replicated("the server did not say for which standby it waited") from None

    async def _still_fenced(self, tx: PostgresTransaction) -> None:
        """Raise ConfigurationError (fence_gone) if another transaction is open now than the one that was fenced.

        A caller can end the transaction and begin another through `tx.connection`.
        """
        if await tx.run(wire.row_of(tx.connection, self._statements["fence_kept"])) != (tx.mark,):
            raise fence_gone(GONE_HINT)

    async def _rolled_back(self, connection: wire.Connection) -> bool:
        if connection.closed:
            return False
        try:
            await wire.bounded(connection, connection.rollback(), fixed(ROLLBACK_LIMIT_S))
        except psycopg.Error:
            return False
        return True

    async def _checkout(self, term: FencedTerm) -> tuple[wire.Connection, bool]:
        """Return a connection of this event loop, and whether an earlier transaction had used it.

        Raises LeaseLost if the term is over.
        """
        term.check()
        loop = asyncio.get_running_loop()
        for index, (home, connection) in enumerate(self._idle):
            if home is loop:
                del self._idle[index]
                if not connection.closed:
                    return connection, True
        limit_s = min(term.remaining_s(), wire.CONNECT_LIMIT_S)
        connection = await wire.connect(self._info, limit_s, autocommit=False)
        self._commits.watch(connection)
        return connection, False

    def _checkin(self, connection: wire.Connection) -> None:
        fit = connection.info.transaction_status == TransactionStatus.IDLE and not connection.closed
        if fit and len(self._idle) < IDLE_CONNECTIONS_MAX:
            self._idle.append((asyncio.get_running_loop(), connection))
        else:
            wire.discard(connection)

    async def close(self) -> None:
        while self._idle:
            wire.leave(self._idle.pop()[1])

    # --- the caller's own connection ---

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        return self._callers.fence(target, key, over)

    async def spoil(self, target: object) -> None:
        with suppress(Exception):
            async with TimeLimit(ROLLBACK_LIMIT_S):
                await self._callers.spoil(target)

    def guard(self, key: TermKey) -> GuardText:
        values = {
            **callers.params(key), "name": key.name.encode().hex(), "holder": key.holder_id.encode().hex(),
            "sync_commit": self._commits.sync_commit,
        }  # fmt: skip
        return GuardText(self._statements["guard"], self._statements.named("guard"), guard_params(values))

    def _fence_blocking(self, connection: psycopg.Connection[Any], key: TermKey) -> None:
        self._commits.watch(connection)
        fence = callers.PostgresFence(self._statements, self._commits, is_own=True)
        callers.Psycopg(connection, self._statements).drive(lambda own: fence.fenced(own, key))

    def _committed_blocking(self, connection: psycopg.Connection[Any]) -> None:
        try:
            self._commits.committed_sync(connection, self._statements)
        except psycopg.Error:
            raise not_replicated("the server did not say for which standby it waited") from None
