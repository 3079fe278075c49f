"""The fence: puts the lease check inside the caller's write, so that a stale writer cannot commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from fencehold.model.leases import TermKey

RemainingS = Callable[[], float]
Params = Sequence[Any] | Mapping[str, Any] | None


class Transaction(Protocol):
    """An open fenced transaction: it commits when its block ends well, only while the epoch holds."""

    @property
    def connection(self) -> Any: ...

    async def execute(self, statement: Any, params: Params = None) -> Any: ...


class SyncTransaction(Protocol):
    """The same for programs without an event loop: on a connection of the store's own, in the calling thread."""

    @property
    def connection(self) -> Any: ...

    def execute(self, statement: Any, params: Params = None) -> Any: ...


def not_known() -> bool | None:
    """For databases where a renewal is the way to ask: an open transaction of the caller's does not hold it up."""
    return None


@dataclass(frozen=True)
class GuardText:
    """A condition for the WHERE of one statement: `sql` in the driver's parameter style, `text` with `:name` ones.

    `is_held` says at once, in the calling thread, whether the store has the lease as this term's; None: it cannot.
    """

    sql: str
    text: str
    params: Mapping[str, Any]
    is_held: Callable[[], bool | None] = not_known


class Done:
    """Nothing left to await: lets `await term.fence(conn)` be written for every kind of connection."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield  # makes this a generator, which an awaitable needs


DONE = Done()


class FencePort(Protocol):
    """Each verb raises LeaseLost when the store refuses, and then nothing was written."""

    def transaction(self, key: TermKey, remaining_s: RemainingS) -> AbstractAsyncContextManager[Transaction]: ...

    def transaction_sync(self, key: TermKey, remaining_s: RemainingS) -> AbstractContextManager[SyncTransaction]: ...

    def fence(self, target: object, key: TermKey, over: bool = False) -> Awaitable[None]:
        """`over`: the term has ended already; only make the target's transaction unable to commit, and raise."""
        ...

    async def spoil(self, target: object) -> None:
        """If a transaction is open on `target`, make it unable to commit; never raises."""
        ...

    def guard(self, key: TermKey) -> GuardText: ...

    async def close(self) -> None: ...
