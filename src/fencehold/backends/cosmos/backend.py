"""The Cosmos DB backend, put together from its parts."""

from __future__ import annotations

from fencehold.backends.absent import NoCheckup, NoFences, NoHints
from fencehold.backends.cosmos import faults
from fencehold.backends.cosmos.address import Address, parse
from fencehold.backends.cosmos.credentials import check_installed
from fencehold.backends.cosmos.items.items import CosmosItems
from fencehold.backends.cosmos.items.procedures import ProcedureItems
from fencehold.backends.cosmos.leases import CosmosLeases
from fencehold.backends.cosmos.schema import CosmosSchema
from fencehold.backends.cosmos.server_clock import ServerClock
from fencehold.backends.cosmos.wire import Wire
from fencehold.ports.facts import FactSink
from fencehold.ports.items import ItemStore

NAME = "Cosmos DB"
FENCE_HINT = (
    "Check term.is_valid, keep term.epoch in the document you write, and replace it by etag only while its "
    "epoch is not higher; or use store.items(), whose saves are checked in the write."
)


class CosmosBackend:
    """The backend of a `cosmos://` URL: leases and items in one container.

    `clock`: a test's replacement for the estimate of the server's clock. `facts`: receives what each request cost.
    """

    name = NAME
    events = None  # no transaction covers both an event and the caller's own documents

    def __init__(
        self, address: Address, table: str, clock: ServerClock | None = None, facts: FactSink | None = None
    ) -> None:
        self._address = address
        self._clock = clock
        self._facts = facts
        self._wire = Wire(address, clock, facts)
        self.leases = CosmosLeases(self._wire, table)
        self.schema = CosmosSchema(self._wire)
        self.fences = NoFences(NAME, FENCE_HINT, own="documents")
        self.wakeup = NoHints()  # the change feed would have to be polled too
        # With etags items need only the container; with stored procedures init uploads them.
        self.checkup = NoCheckup(f"{NAME} has no transaction to undo one", has_items=address.by_procedure)

    @staticmethod
    def check(url: str) -> Address:
        address = parse(url)
        if address.credential:
            check_installed()
        return address

    def items(self, kind: str) -> ItemStore:
        make = ProcedureItems if self._address.by_procedure else CosmosItems
        return make(Wire(self._address, self._clock, self._facts), kind)

    async def open(self, limit_s: float) -> None:
        """Check that the account answers and accepts the key or token; the container need not exist before init()."""
        async with faults.within(limit_s, is_write=False):
            await self._wire.client()

    async def close(self) -> None:
        await self._wire.close()
