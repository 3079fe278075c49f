"""Cosmos DB's stand-in, a database per test, on a clock of the test's own.

`set_clock` replaces what is known of the server's clock by one instant, so that the rules are met to the tick.
`shift_clock` bends the server's own clock instead, and the client finds it out from `_ts` as it would anywhere.
"""

import datetime as dt
from urllib.parse import urlsplit

from fencehold.backends.cosmos.address import parse
from fencehold.backends.cosmos.backend import CosmosBackend
from fencehold.backends.cosmos.server_clock import ServerClock, Window
from fencehold.ports.backend import Backend
from fencehold.testing.harness import LEASE_TABLE, Can, Harness, Remote, Traits
from fencehold.testing.proxy import FaultProxy
from tests.servers.cosmos import CosmosServer


class BentClock(ServerClock):
    """The server's clock, unless it stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen: dt.datetime | None = None

    def window(self, partition: str) -> Window | None:
        return super().window(partition) if self.frozen is None else Window(self.frozen, self.frozen)


class CosmosHarness(Harness):
    traits = Traits(
        "Cosmos DB",
        tick=dt.timedelta(microseconds=1),
        item_tick=dt.timedelta(milliseconds=1),  # as in the specification
        can={Can.LEASES, Can.ITEMS, Can.PROCESSES, Can.NETWORK},
        walk_steps=700,
    )

    def __init__(self, server: CosmosServer) -> None:
        super().__init__()
        self._server = server
        self.url = server.url()
        self._clock = BentClock()

    async def prepare(self) -> None:
        return None

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return CosmosBackend(parse(self.url), table, self._clock)

    async def set_clock(self, at: dt.datetime) -> None:
        self._clock.frozen = at

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        self._clock.frozen = None
        self._server.shift_clock(ahead.total_seconds())

    @property
    def remote(self) -> Remote:
        return Remote(self.url)

    async def network(self) -> tuple[FaultProxy, Backend]:
        proxy = FaultProxy("127.0.0.1", urlsplit(self.url).port or 0)
        await self.stack.enter_async_context(proxy)
        parts = urlsplit(self.url)
        through = parts._replace(netloc=f":{parts.password}@{proxy.host}:{proxy.port}").geturl()
        return proxy, await self.opened(CosmosBackend(parse(through), LEASE_TABLE, self._clock))
