"""A term without a leader: its lease is ended by hand, and its store refuses when told to."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fencehold.backends.memory.backend import MemoryFences, MemoryTransaction, Shelf
from fencehold.model.election.rules import Lease, TermKey
from fencehold.model.election.settings import leader_settings
from fencehold.model.errors import ConfigurationError, LeaseLost
from fencehold.ports.fence import GuardText, Ready, RemainingS
from fencehold.runtime.election.keeper import HeldLease
from fencehold.runtime.election.term import Term
from tests.fencehold.testing.simulation.on_virtual_time import LoopClock

SETTINGS = leader_settings(lease=10, margin=1)
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class NoFacts:
    def fact(self, event: str, **fields: Any) -> None:
        return None


class Fences(MemoryFences):
    """Refuses when told to, as a store that granted the lease to another.

    A connection is one of the store's, one of another database, or one on which the lease is not held.
    """

    def __init__(self) -> None:
        super().__init__(Shelf())
        self.refusing = False
        self.epoch_refused = 1
        self.ours: tuple[object, ...] = ()
        self.elsewhere: tuple[object, ...] = ()
        self.spoiled: list[object] = []

    def _refuse(self) -> None:
        if self.refusing:
            raise LeaseLost("over", name="one", epoch=self.epoch_refused)

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[MemoryTransaction]:
        yield MemoryTransaction()
        self._refuse()

    def fence(self, target: object, key: TermKey, over: bool = False) -> Any:
        self._refuse()
        if target in self.elsewhere:
            error = ConfigurationError("another database", code="wrong_store")
            if target == "async":
                return self._refuse_later(error)
            raise error
        if target in self.ours:
            return Ready(None)
        return self._fence() if target == "async" else super().fence(target, key)

    async def spoil(self, target: object) -> None:
        self.spoiled.append(target)

    async def _refuse_later(self, error: Exception) -> None:
        await asyncio.sleep(0)
        raise error

    async def _fence(self) -> None:
        await asyncio.sleep(0)
        self.refusing = True
        self._refuse()

    def guard(self, key: TermKey) -> GuardText:
        return GuardText("epoch = %(epoch)s", "epoch = :epoch", {"epoch": key.epoch})


def a_term(epoch: int = 1) -> tuple[Term, HeldLease, Fences]:
    row = Lease("one", "me", epoch, START, START, START + dt.timedelta(seconds=10), 10.0)
    held = HeldLease(row, SETTINGS, LoopClock().now_s(), LoopClock(), NoFacts())
    fences = Fences()
    return Term(held, fences), held, fences


async def for_ever() -> None:
    await asyncio.Event().wait()


def later(after_s: float, callback: Callable[..., object], *args: Any) -> None:
    asyncio.get_running_loop().call_later(after_s, callback, *args)
