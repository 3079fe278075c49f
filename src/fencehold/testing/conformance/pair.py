"""A store and the rule table side by side, for events and for items."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Generic, TypeVar

from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import Harness

C = TypeVar("C")


class ClientsAndClock(Generic[C]):
    """Clients of one store whose clock stands still at `now`."""

    def __init__(self, harness: Harness, clients: Sequence[C]) -> None:
        self.harness = harness
        self.clients = clients
        self.now = START
        self._calls = 0

    async def set_clock(self, at: dt.datetime) -> None:
        self.now = at
        await self.harness.set_clock(at)

    @property
    def client(self) -> C:
        """Another client each time: any client may continue what another one began."""
        self._calls += 1
        return self.clients[self._calls % len(self.clients)]
