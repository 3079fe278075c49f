"""Stand-ins for the parts of a backend that a store does not have: a backend names each in one line.

`store` is how the messages call the store: "Cosmos DB", "A JSON file". What a program asks for and cannot have is
refused before anything is sent, with a code; what it can do without is answered with "nothing".
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from fencehold.backends.no_checkup import NoCheckup
from fencehold.model.election.leases import TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.fence import GuardText, RemainingS, SyncTransaction, Transaction
from fencehold.ports.schema import Waits, unheard
from fencehold.ports.wakeup import Hint

__all__ = ["NoCheckup", "NoFences", "NoTables", "NoWakeup", "no_items", "no_outbox"]

FENCE_HINT = (
    "Check term.is_valid, and keep term.epoch with what you write: refuse a write whose epoch is lower than the last."
)
SQL_HINT = "Keep {what} in a SQL database: fencehold.connect(...) with its URL."


class NoFences:
    """Refuses every fence before anything is sent: raises LeaseLost if the term is over, else `no_transactions`."""

    def __init__(self, store: str, hint: str = FENCE_HINT) -> None:
        self._store = store
        self._hint = hint

    def transaction(self, key: TermKey, remaining_s: RemainingS) -> AbstractAsyncContextManager[Transaction]:
        raise self._refusal()

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]:
        raise self._refusal()

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        if over:
            raise LeaseLost(f"Lease {key.name!r} epoch {key.epoch} is over.", name=key.name, epoch=key.epoch)
        raise self._refusal()

    async def spoil(self, target: object) -> None:
        return None

    def guard(self, key: TermKey) -> GuardText:
        raise self._refusal()

    async def close(self) -> None:
        return None

    def _refusal(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self._store} has no transaction that holds a lease and your own writes, so a term cannot fence them.",
            hint=self._hint,
            code="no_transactions",
        )


class NoTables:
    """For a store where nothing has to be made beforehand; override what differs. `script` returns a comment."""

    def __init__(self, store: str) -> None:
        self._store = store

    async def init(self, limit_s: float, waits: Waits = unheard) -> list[str]:
        return []

    async def missing(self, limit_s: float) -> list[str]:
        return []

    async def fault(self, limit_s: float) -> ConfigurationError | None:
        return None

    async def rights_missing(self, limit_s: float) -> list[str]:
        return []

    def script(self) -> str:
        return f"-- {self._store} has no tables\n"


class NoWakeup:
    """For a store that cannot tell others of a change: candidates then poll."""

    def on_hint(self, hint: Hint) -> None:
        return None

    async def listen(self, limit_s: float) -> bool:
        return False


def no_outbox(store: str) -> ConfigurationError:
    """Return what `Backend.events` raises where there is no outbox."""
    return ConfigurationError(
        f"{store} has no outbox: an event could not be added in the transaction of your own writes.",
        hint=SQL_HINT.format(what="the outbox"),
        code="no_outbox",
    )


def no_items(store: str) -> ConfigurationError:
    """Return what `Backend.items` raises where there are no items."""
    return ConfigurationError(
        f"{store} keeps leases only, no items.", hint=SQL_HINT.format(what="the items"), code="no_items"
    )
