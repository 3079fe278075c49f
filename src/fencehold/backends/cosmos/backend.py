"""The parts of the Cosmos DB backend, put together."""

from __future__ import annotations

from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.address import Address, parse
from fencehold.backends.cosmos.charges import Charges
from fencehold.backends.cosmos.credentials import check_installed
from fencehold.backends.cosmos.fences import NoFences, NoWakeup, no_events
from fencehold.backends.cosmos.items.items import CosmosItems
from fencehold.backends.cosmos.items.procedures import ProcedureItems
from fencehold.backends.cosmos.leases import CosmosLeases
from fencehold.backends.cosmos.schema import CosmosSchema
from fencehold.backends.cosmos.server_clock import ServerClock
from fencehold.backends.cosmos.wire import Wire
from fencehold.backends.no_checkup import NoCheckup
from fencehold.ports.events import Events
from fencehold.ports.facts import FactSink
from fencehold.ports.items import ItemStore
from fencehold.ports.time_limit import TimeLimit


class CosmosBackend:
    """`clock` replaces the estimate of the server's clock, for tests. `charges` counts for all parts of this client."""

    def __init__(
        self, address: Address, table: str, clock: ServerClock | None = None, facts: FactSink | None = None
    ) -> None:
        self._address = address
        self._clock = clock
        self.charges = Charges(facts)
        self._wire = Wire(address, clock, self.charges)
        self.leases = CosmosLeases(self._wire, table)
        self.schema = CosmosSchema(self._wire)
        self.fences = NoFences()
        self.wakeup = NoWakeup()
        # With etags items need only the container; with stored procedures init uploads them.
        self.checkup = NoCheckup("Cosmos DB has no transaction to undo one", has_items=address.by_procedure)

    @staticmethod
    def check(url: str) -> Address:
        address = parse(url)
        if address.credential:
            check_installed()
        return address

    def events(self, table: str) -> Events:
        return no_events()

    def items(self, kind: str) -> ItemStore:
        make = ProcedureItems if self._address.by_procedure else CosmosItems
        return make(Wire(self._address, self._clock, self.charges), kind)

    async def open(self, limit_s: float) -> None:
        """Check that the account answers and accepts the key or token; the container need not exist before init()."""
        try:
            async with TimeLimit(limit_s):
                await self._wire.client()
        except TimeoutError:
            raise faults.of_timeout(is_write=False) from None
        except faults.DRIVER_ERRORS as error:
            raise faults.of_connect(error) from None

    async def close(self) -> None:
        await self._wire.close()
