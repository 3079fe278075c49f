"""Items by stored procedure and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge
from tests.fencehold.testing.conformance.cosmos_procedures_harness import ProcedureHarness

pytestmark = pytest.mark.needs("node")


@pytest.fixture
def harness(bridge: Bridge, request: pytest.FixtureRequest) -> Harness:
    return ProcedureHarness(bridge, buckets=getattr(request, "param", 1))


class TestProcedures(conformance.Suite, harness=ProcedureHarness):
    @pytest.mark.parametrize("harness", [3], indirect=True)
    class TestItemCrowdInBuckets(conformance.ItemCrowd): ...
