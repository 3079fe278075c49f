"""The procedures path on the bridge: the library down to the driver's calls, the procedures as they are uploaded."""

import datetime as dt
import uuid
from unittest import mock

from fencehold.backends.cosmos.address import Address
from fencehold.backends.cosmos.backend import CosmosBackend
from fencehold.backends.cosmos.schema import CosmosSchema
from fencehold.backends.cosmos.wire import Wire
from fencehold.ports.backend import Backend
from fencehold.ports.facts import FactSink
from fencehold.testing.harness import LEASE_TABLE, Can, Harness, Traits
from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge, Container
from tests.fencehold.testing.conformance.cosmos_harness import BentClock

EPOCH_START = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)


class ProcedureHarness(Harness):
    """A space of the bridge's own. The procedures ask its clock; the reads beside them, the client's idea of it."""

    traits = Traits("Cosmos DB, procedures", tick=MILLISECOND, can={Can.ITEMS}, walk_steps=1500)

    def __init__(self, bridge: Bridge, buckets: int = 1) -> None:
        super().__init__()
        self.bridge = bridge
        self.space = uuid.uuid4().hex
        self.buckets = buckets
        self.container = Container(bridge, self.space)
        self._clock = BentClock()

    async def prepare(self) -> None:
        container = mock.AsyncMock(return_value=self.container)
        self.stack.enter_context(mock.patch.object(Wire, "container", container))
        self.stack.enter_context(mock.patch.object(CosmosSchema, "init", mock.AsyncMock(return_value=[])))

    def make(self, table: str = LEASE_TABLE) -> Backend:
        return self.made(by_procedure=True)

    def made(self, *, by_procedure: bool, facts: FactSink | None = None) -> CosmosBackend:
        address = Address("bridge", self.space, buckets=self.buckets, by_procedure=by_procedure)
        return CosmosBackend(address, LEASE_TABLE, self._clock, facts)

    async def set_clock(self, at: dt.datetime) -> None:
        self._clock.frozen = at
        self.bridge.ask(self.space, "set_clock", now=(at - EPOCH_START) // MILLISECOND)

    async def shift_clock(self, ahead: dt.timedelta) -> None:
        self._clock.frozen = None
        self.bridge.ask(self.space, "shift_clock", ahead=ahead // MILLISECOND)
