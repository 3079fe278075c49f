"""The memory store on a clock of the test's own."""

import datetime as dt
import time

from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.ports.backend import Backend
from fencehold.ports.fence import Transaction
from fencehold.testing.harness import LEASE_TABLE, Can, Harness, Traits


class MemoryHarness(Harness):
    traits = Traits(
        "memory",
        tick=dt.timedelta(microseconds=1),
        can={
            Can.LEASES, Can.FENCES, Can.ROW_LOCKS, Can.WAKEUPS, Can.OUTBOX, Can.EVENT_HINTS, Can.ITEMS, Can.ITEM_KINDS,
        },
        walk_steps=6000,
    )  # fmt: skip

    async def prepare(self) -> None:
        self._notes: list[int] = []
        self._shelf = Shelf()

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return MemoryBackend(self._shelf)

    async def set_clock(self, at: dt.datetime) -> None:
        at_s = at.timestamp()
        self._shelf.now_s = lambda: at_s

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        ahead_s = ahead.total_seconds()
        self._shelf.now_s = lambda: time.time() + ahead_s

    async def write(self, tx: Transaction, note: int) -> None:
        await tx.execute(lambda: self._notes.append(note))

    async def written(self) -> list[int]:
        return list(self._notes)
