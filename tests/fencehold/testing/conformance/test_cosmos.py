"""Cosmos DB and the conformance suite, items by etag. The tests of its backend do what it cannot."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.fencehold.testing.conformance.cosmos_harness import CosmosHarness
from tests.servers.cosmos import CosmosServer


@pytest.fixture
def harness(cosmos_server: CosmosServer) -> Harness:
    return CosmosHarness(cosmos_server)


LEAVE_OUT = {
    "Crowd": "is in tests/fencehold/backends/cosmos/test_leases.py",
    "ProcessCrowd": "is in tests/fencehold/backends/cosmos/test_leases.py",
    "ItemCrowd.test_on_threads_each_item_is_worked_on_exactly_once": "is done by processes, which share less",
}


class TestCosmos(conformance.Suite, harness=CosmosHarness, leave_out=LEAVE_OUT):
    @pytest.mark.fault("server-clock", "leader")
    class TestTimes(conformance.Times): ...

    @pytest.mark.fault("reset", "leader")
    @pytest.mark.fault("frozen-tcp", "leader")
    class TestNetworkFaults(conformance.NetworkFaults): ...

    @pytest.mark.fault("server-clock", "items")
    class TestItemTimes(conformance.ItemTimes): ...
