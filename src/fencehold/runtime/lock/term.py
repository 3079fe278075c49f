"""A leader's term under a lock with a fencing epoch: fenced transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, overload

from fencehold.model.election.leases import TermKey
from fencehold.ports.connections import AsyncConnection, Connection, SyncConnection
from fencehold.ports.fact_table import LeaseFacts, LockFacts
from fencehold.ports.fence import Transaction
from fencehold.ports.lock_session import Companion
from fencehold.runtime.core.block_kinds import AsyncTransactionBlock
from fencehold.runtime.election.pending_fence import NOT_AWAITED_HINT, PendingFence, called_on, loop_here
from fencehold.runtime.lock.mechanism import Grant


async def _awaited(pending: Awaitable[None]) -> None:
    await pending


class LockTerm:
    """The current term of a lock with a fencing epoch, which is its token. It makes fenced transactions."""

    def __init__(self, grant: Grant, companion: Companion[Any], lease_s: float, log: LockFacts) -> None:
        assert grant.epoch is not None, "a term has an epoch"
        self._log = LeaseFacts(log.sink, lease_epoch=grant.epoch)
        self._loop = loop_here()
        self.epoch = grant.epoch
        self._grant = grant
        self._companion = companion
        self._lease_s = lease_s

    @property
    def is_valid(self) -> bool:
        return self._grant.is_valid

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A fenced transaction on its own connection: it commits only while this epoch holds."""
        block = self._companion.fences.transaction(self._key(), lambda: self._grant.remaining_s)
        return AsyncTransactionBlock(block)

    @overload
    def fence(self, connection_or_session: SyncConnection) -> Awaitable[None]: ...
    @overload
    def fence(self, connection_or_session: AsyncConnection) -> Coroutine[Any, Any, None]: ...
    def fence(self, connection_or_session: Connection) -> Awaitable[None]:
        """Fence a transaction that the caller owns: it commits only while this epoch holds.

        Await it for async connections and sessions. Without the await an async one is not fenced: that is logged as
        an error (`fence_not_awaited`) and ends the term.
        """
        pending = self._companion.fences.fence(connection_or_session, self._key())
        if not asyncio.iscoroutine(pending):
            return pending
        return PendingFence(_awaited(pending), pending, self._forgotten)

    def _forgotten(self) -> None:
        self._grant.may_resume = False  # this term has ended, even within the grace period
        self._grant.end()
        called_on(self._loop, lambda: self._log.fence_not_awaited(hint=NOT_AWAITED_HINT))

    def _key(self) -> TermKey:
        companion = self._companion
        return TermKey(companion.name, companion.holder_id, self.epoch, self._lease_s, companion.lease_id)
