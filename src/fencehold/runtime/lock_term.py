"""What a leader by lock may do under its fencing epoch."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fencehold.model.leases import TermKey
from fencehold.ports.fence import Transaction
from fencehold.ports.lock_session import Companion
from fencehold.runtime.lock_mechanism import Grant


class LockTerm:
    """The current term when the lock has a fencing epoch: the token, and fenced transactions."""

    def __init__(self, grant: Grant, companion: Companion[Any], lease_s: float) -> None:
        assert grant.epoch is not None, "a term has an epoch"
        self.epoch = grant.epoch
        self._grant = grant
        self._companion = companion
        self._lease_s = lease_s

    @property
    def is_valid(self) -> bool:
        return self._grant.is_valid

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A fenced transaction on a connection of its own: it commits only while this epoch holds."""
        return self._companion.fences.transaction(self._key(), lambda: self._grant.remaining_s)

    def fence(self, connection_or_session: object) -> Awaitable[None]:
        """The same guard in a transaction the caller owns."""
        return self._companion.fences.fence(connection_or_session, self._key())

    def _key(self) -> TermKey:
        companion = self._companion
        return TermKey(companion.name, companion.holder_id, self.epoch, self._lease_s, companion.lease_id)
