"""A whole store as one process has it: the memory backend, with every verb going over the process's line."""

from __future__ import annotations

import asyncio
from functools import partial

from fencehold.backends.absent import NoCheckup, NoTables
from fencehold.backends.memory.backend import MemoryFences, MemoryLeases, Shelf
from fencehold.backends.memory.hints import MemoryHints
from fencehold.backends.memory.items import MemoryItems
from fencehold.backends.memory.outbox.events import MemoryEventAdmin, MemoryEventPort, MemoryEventsInTx
from fencehold.backends.memory.outbox.shelf import EventShelf
from fencehold.model.election.places import UNKNOWN, Place
from fencehold.ports.fence import FencePort
from fencehold.ports.leases import LeasePort
from fencehold.ports.wakeup import Hint
from fencehold.testing.simulation.loop import SimulationLoop
from fencehold.testing.simulation.network import Line, Watch, over_line

STORE = "the store"
EPOCH_0_S = 1_700_000_000.0


def new_shelf(loop: SimulationLoop, place: Place = UNKNOWN) -> Shelf:
    """The rows of a store whose clock is the true time."""
    return Shelf(now_s=lambda: EPOCH_0_S + loop.time(), place=place, origin=place)


class HintsOverLine(MemoryHints):
    """Of leases or of events: what the store tells all of `relays` is passed on once the process listens."""

    def __init__(self, relays: list[Hint], line: Line) -> None:
        super().__init__(relays)
        self._line = line

    def on_hint(self, hint: Hint) -> None:
        side, line = asyncio.get_running_loop(), self._line
        self._mine.append(lambda what, name: line.tell(side, partial(hint, what, name)))


class EventsOverLine:
    def __init__(self, shelf: EventShelf, line: Line, watch: Watch | None) -> None:
        self.schema = NoTables(STORE)
        self.port = over_line(MemoryEventPort(shelf), line, watch)
        self.in_tx = over_line(MemoryEventsInTx(shelf), line)
        self.admin = over_line(MemoryEventAdmin(shelf), line)
        self.hints = HintsOverLine(shelf.relays, line)

    async def close(self) -> None:
        self.hints.close()


class ItemsOverLine(MemoryItems):
    def __init__(self, shelf: Shelf, kind: str, line: Line, watch: Watch | None) -> None:
        super().__init__(shelf.items, kind)
        self.port = self.leases = self.admin = over_line(self.port, line, watch)


class BackendOverLine:
    """`watch` sees the verbs of events and items."""

    name = STORE
    leases: LeasePort
    fences: FencePort

    def __init__(self, shelf: Shelf, line: Line, watch: Watch | None = None) -> None:
        self.leases = over_line(MemoryLeases(shelf), line)
        self.fences = MemoryFences(shelf)
        self.wakeup = HintsOverLine(shelf.hints, line)
        self.checkup = NoCheckup(f"{STORE} is simulated")
        self.schema = NoTables(STORE)
        self._shelf, self._line, self._watch = shelf, line, watch

    def events(self, table: str) -> EventsOverLine:
        return EventsOverLine(self._shelf.outbox(table), self._line, self._watch)

    def items(self, kind: str) -> ItemsOverLine:
        return ItemsOverLine(self._shelf, kind, self._line, self._watch)

    async def open(self, limit_s: float) -> None:
        return None

    async def close(self) -> None:
        return None
