"""Fenced transactions in the simulation, for leases and for locks with an epoch.

A request, its answer or the commit may be lost, and a transaction may stay open. What reaches the store is executed at
the instant of its arrival, whether or not the sender still waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

from fencehold.backends.memory.backend import MemoryFences, MemoryTransaction
from fencehold.model.election.places import Place
from fencehold.model.election.rules import Lease, TermKey
from fencehold.model.errors import LeaseLost, Unavailable
from fencehold.ports.fence import GuardText, RemainingS
from fencehold.testing.history import Wrote
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import Line, new_shelf
from fencehold.testing.simulation.referee import Referee, Trace

LEASE_NAME = "one"
ORIGIN = Place(timeline=1, system=1)
WRITE_LIMIT_S = 3.0


class FenceReferee(Referee):
    """A referee that judges accepted fenced writes: no write may have an older epoch than the write before it."""

    def __init__(self, loop: SimulationLoop, trace: Trace) -> None:
        super().__init__(loop, trace)
        self.kept: list[Wrote] = []  # the accepted writes that the database still has: a promotion may have lost some

    def wrote(self, key: TermKey) -> None:
        self.counts["writes accepted"] += 1
        self.trace.note("store", f"accepts a write of {key.holder_id} epoch {key.epoch}")
        newest = self.kept[-1].epoch if self.kept else 0
        self.must(key.epoch >= newest, f"a write of epoch {key.epoch} was accepted after one of epoch {newest}")
        self.kept.append(Wrote(key.name, key.holder_id, key.epoch, int(self.counts["writes accepted"])))

    def refused(self, key: TermKey) -> None:
        self.counts["writes refused"] += 1
        self.trace.note("store", f"REFUSES a write of {key.holder_id} epoch {key.epoch}")


@dataclass(eq=False)
class OpenTransaction:
    """An open fenced transaction at the store. While it is open, nobody can take its lease over."""

    key: TermKey
    is_open: bool = True
    timer: asyncio.TimerHandle | None = None


class FencedStore:
    """The simulated store: the memory backend's lease rows on virtual time, and fenced transactions on one row."""

    #: How writes are checked: "epoch" as the product does it, or broken on purpose.
    fence: ClassVar[str] = "epoch"

    def __init__(self, loop: SimulationLoop, referee: FenceReferee) -> None:
        self.shelf = new_shelf(loop, ORIGIN)
        self._loop, self._writes = loop, referee
        self._fences = MemoryFences(self.shelf)
        self._open: list[OpenTransaction] = []

    @property
    def row(self) -> Lease | None:
        return self.shelf.rows.get(LEASE_NAME)

    def wrote(self, key: TermKey) -> None:
        """Report an accepted write to the referee, with the key of its term."""
        self._writes.wrote(key)

    def write_guarded(self, key: TermKey) -> int:
        """Run one statement with the guard in its WHERE.

        Return the number of changed rows: 1, or 0 if the fence refuses it.
        """
        try:
            self._check(key)
        except LeaseLost:
            return 0
        self.wrote(key)
        return 1

    def begin(self, key: TermKey) -> OpenTransaction:
        self._check(key)
        transaction = OpenTransaction(key)
        row = self.row
        assert row is not None, "the fence passed only what it found"
        left_s = max(0.0, (row.expires_at - self.shelf.now()).total_seconds())
        # A server that limits a fenced transaction's idle time does the same: a frozen holder cannot block for ever.
        transaction.timer = self._loop.call_later(left_s, self.roll_back, transaction)
        if self.fence == "epoch":
            self.shelf.fenced[key.name] = self.shelf.fenced.get(key.name, 0) + 1
        self._open.append(transaction)
        return transaction

    def commit(self, transaction: OpenTransaction) -> None:
        if not transaction.is_open:
            raise Unavailable("The store has rolled this transaction back.")
        self.wrote(transaction.key)
        self._end(transaction)

    def roll_back(self, transaction: OpenTransaction) -> None:
        if transaction.is_open:
            self._end(transaction)

    def restart(self) -> None:
        """Simulate a restart of the store: it keeps its rows, and rolls back all open transactions."""
        for transaction in list(self._open):
            self.roll_back(transaction)

    def _check(self, key: TermKey) -> None:
        try:
            if self.fence == "epoch":
                self._fences.fence(None, key)
            row = self.row
            if self.fence == "holder" and (
                row is None or row.holder_id != key.holder_id or row.expires_at <= self.shelf.now()
            ):
                raise LeaseLost("Another holds it.", name=key.name, epoch=key.epoch)
        except LeaseLost:
            self._writes.refused(key)
            raise

    def _end(self, transaction: OpenTransaction) -> None:
        transaction.is_open = False
        self._open.remove(transaction)
        if transaction.timer is not None:
            transaction.timer.cancel()
        if self.fence == "epoch":
            self.shelf.fenced[transaction.key.name] -= 1


class FencesOverLine(MemoryFences):
    """The fenced writes of one simulated process, sent from the user's thread over the network line of that process."""

    def __init__(self, store: FencedStore, line: Line) -> None:
        super().__init__(store.shelf)
        self._store, self._line = store, line

    @asynccontextmanager
    async def transaction(self, key: TermKey, remaining_s: RemainingS) -> AsyncIterator[MemoryTransaction]:
        line, store, opened = self._line, self._store, list[OpenTransaction]()
        try:
            await line.ask(lambda: opened.append(store.begin(key)), WRITE_LIMIT_S)
            yield MemoryTransaction()
            await line.ask(lambda: store.commit(opened[0]), WRITE_LIMIT_S)
        finally:
            if opened and opened[0].is_open:
                line.hang_up(lambda: store.roll_back(opened[0]))

    async def write_guarded(self, key: TermKey) -> int:
        return await self._line.ask(lambda: self._store.write_guarded(key), WRITE_LIMIT_S)

    def guard(self, key: TermKey) -> GuardText:
        return GuardText("", "", {"key": key})
