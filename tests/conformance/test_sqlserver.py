"""SQL Server and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.sqlserver_harness import SqlServerHarness


@pytest.fixture
def harness(mssql_url: str) -> Harness:
    return SqlServerHarness(mssql_url)


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


class TestFences(conformance.Fences): ...


class TestPassingRenewals(conformance.PassingRenewals): ...


class TestSyncFences(conformance.SyncFences): ...


class TestCallerFences(conformance.CallerFences): ...


class TestWaitingWriter(conformance.WaitingWriter): ...


class TestSchemas(conformance.Schemas): ...


class TestSilence(conformance.Silence): ...


class TestWalk(conformance.Walk): ...


class TestCrowd(conformance.Crowd): ...


class TestProcessCrowd(conformance.ProcessCrowd): ...


class TestNetworkFaults(conformance.NetworkFaults): ...


class TestNames(conformance.Names): ...


class TestTimes(conformance.Times): ...
