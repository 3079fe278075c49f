"""Refuses fences and outboxes: no transaction of Cosmos DB covers both the lease and the caller's own documents."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from fencehold.model.election.leases import TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.events import Events
from fencehold.ports.fence import GuardText, RemainingS, SyncTransaction, Transaction
from fencehold.ports.wakeup import Hint


def no_fence() -> ConfigurationError:
    return ConfigurationError(
        "Cosmos DB has no transaction that holds a lease and your own documents, so a term cannot fence your writes.",
        hint="Check term.is_valid, keep term.epoch in the document you write, and replace it by etag only while its "
        "epoch is not higher; or use store.items(), whose saves are checked in the write.",
        code="no_transactions",
    )


def no_outbox() -> ConfigurationError:
    return ConfigurationError(
        "There is no outbox on Cosmos DB: an event could not be added in the transaction of your own writes.",
        hint="Keep the outbox in the SQL database that those writes go to.",
        code="no_outbox",
    )


class NoFences:
    """Refuses every fence before anything is sent: raises LeaseLost if the term is over, else ConfigurationError."""

    def transaction(self, key: TermKey, remaining_s: RemainingS) -> AbstractAsyncContextManager[Transaction]:
        raise no_fence()

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]:
        raise no_fence()

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        if over:
            raise LeaseLost(f"Lease {key.name!r} epoch {key.epoch} is over.", name=key.name, epoch=key.epoch)
        raise no_fence()

    async def spoil(self, target: object) -> None:
        return None

    def guard(self, key: TermKey) -> GuardText:
        raise no_fence()

    async def close(self) -> None:
        return None


class NoWakeup:
    """Gives no hints: Cosmos DB reports a change only in its change feed, which must be polled too."""

    def on_hint(self, hint: Hint) -> None:
        return None

    async def listen(self, limit_s: float) -> bool:
        return False


def no_events() -> Events:
    raise no_outbox()
