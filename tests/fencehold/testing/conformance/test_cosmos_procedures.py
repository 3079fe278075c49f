"""Items by stored procedure and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.cosmos_procedures.bridge import Bridge
from tests.cosmos_procedures.procedure_harness import ProcedureHarness

pytestmark = pytest.mark.needs("node")


@pytest.fixture
def harness(bridge: Bridge, request: pytest.FixtureRequest) -> Harness:
    return ProcedureHarness(bridge, buckets=getattr(request, "param", 1))


class TestProcedures(conformance.Suite, harness=ProcedureHarness):
    @pytest.mark.parametrize("harness", [3], indirect=True)
    class TestItemCrowdInBuckets(conformance.ItemCrowd): ...
