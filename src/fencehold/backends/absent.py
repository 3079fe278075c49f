"""Stand-ins for the parts that every backend must have, for a store that has nothing of the kind.

`store` is how the messages call the store: "Cosmos DB", "A JSON file". A part that a program asks for, and that the
store cannot have, is refused with a code before anything is sent; a part that a program can do without answers
"nothing". An outbox and items need no stand-in: a backend declares `events = None` and `items = None`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from fencehold.model.election.rules import TermKey
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.checkup import Condition, TablesMade
from fencehold.ports.fence import GuardText, RemainingS, SyncTransaction, Transaction
from fencehold.ports.schema import Waits, unheard

FENCE_HINT = (
    "Check term.is_valid, and keep term.epoch with what you write: refuse a write whose epoch is lower than the last."
)


class NoFences:
    """The fences of a store without transactions: every call is refused before anything is sent.

    Raises ConfigurationError (no_transactions); `fence` raises LeaseLost if the term is over.
    """

    def __init__(self, store: str, hint: str = FENCE_HINT, own: str = "data") -> None:
        self._store, self._hint, self._own = store, hint, own

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
            f"{self._store} has no transaction that holds a lease and your own {self._own}, so a term cannot "
            "fence your writes.",
            hint=self._hint,
            code="no_transactions",
        )


class NoTables:
    """The tables of a store that needs none: `init` makes nothing, nothing is missing, `script` returns a comment.

    A subclass overrides the methods that differ.
    """

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


class NoHints:
    """The hints of a store that cannot report changes of leases or events: no hint is ever called, so callers poll."""

    def on_hint(self, hint: Callable[..., None]) -> None:
        return None

    async def listen(self, limit_s: float) -> bool:
        return False


class NoCheckup:
    """The checks of a store that has no settings to check, and no transaction in which a test write can be undone.

    `why`: the reason that is reported for not trying a write. `has_items`: whether `init` makes something for items.
    """

    def __init__(self, why: str, has_items: bool = False) -> None:
        self._why = why
        self._has_items = has_items

    async def try_write(self, limit_s: float) -> str:
        return self._why

    async def tables_made(self, limit_s: float) -> TablesMade:
        return TablesMade(has_items=self._has_items)

    async def conditions(self, limit_s: float) -> list[Condition]:
        return []
