"""A connected database, as the runtime sees it."""

from __future__ import annotations

from typing import Protocol

from fencehold.ports.checkup import CheckupPort
from fencehold.ports.events import Events
from fencehold.ports.fence import FencePort
from fencehold.ports.items import ItemStore
from fencehold.ports.leases import LeasePort
from fencehold.ports.schema import SchemaPort
from fencehold.ports.wakeup import WakeupPort


class Backend(Protocol):
    """`open`, `close` and all verbs except those of the fence run on the keeper's event loop."""

    @property
    def leases(self) -> LeasePort: ...

    @property
    def schema(self) -> SchemaPort: ...

    @property
    def wakeup(self) -> WakeupPort: ...

    @property
    def fences(self) -> FencePort: ...

    @property
    def checkup(self) -> CheckupPort: ...

    def events(self, table: str) -> Events:
        """One outbox, on a connection of its own that is opened when needed; for one event loop."""
        ...

    def items(self, kind: str) -> ItemStore:
        """The items of one kind, on a connection of their own that is opened when needed; for one event loop."""
        ...

    async def open(self, limit_s: float) -> None: ...

    async def close(self) -> None: ...
