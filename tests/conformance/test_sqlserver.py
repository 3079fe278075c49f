"""SQL Server and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.sqlserver_harness import SqlServerHarness
from tests.servers.sqlserver import SqlServer

pytestmark = pytest.mark.limit(300)  # some servers take a second to read a statement for the first time


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same reason: what a server needs a second for cannot be had in a quarter."""
    for name, seconds in {"faults.LIMIT_S": 2.0, "faults.TERM_S": 4.0, "fences.TRY_LIMIT_S": 2.0}.items():
        monkeypatch.setattr(f"fencehold.testing.conformance.leases.{name}", seconds)


@pytest.fixture
def harness(mssql_url: str, mssql_server: SqlServer) -> Harness:
    return SqlServerHarness(mssql_url, mssql_server.fresh_database)


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


class TestFences(conformance.Fences): ...


class TestPassingRenewals(conformance.PassingRenewals): ...


class TestSyncFences(conformance.SyncFences): ...


class TestCallerFences(conformance.CallerFences): ...


@pytest.mark.fault("slow", "fence")
class TestWaitingWriter(conformance.WaitingWriter):
    async def ready(self, harness: Harness) -> None:
        await super().ready(harness)
        assert isinstance(harness, SqlServerHarness)
        if self.is_about_guards and not await harness.sql.keeps_shared_locks():
            pytest.skip("this server takes REPEATABLEREAD for nothing, so a guard does not guard there")

    @pytest.fixture(autouse=True)
    def subject(self, request: pytest.FixtureRequest) -> None:
        self.is_about_guards = "guarded_statement" in request.node.originalname


class TestSchemas(conformance.Schemas): ...


class TestSilence(conformance.Silence): ...


class TestWalk(conformance.Walk):
    test_limit_s = 290.0


class TestCrowd(conformance.Crowd):
    test_limit_s = 290.0


class TestProcessCrowd(conformance.ProcessCrowd):
    test_limit_s = 290.0


@pytest.mark.fault("reset", "leader")
@pytest.mark.fault("reset", "fence")
@pytest.mark.fault("frozen-tcp", "leader")
@pytest.mark.fault("frozen-tcp", "fence")
class TestNetworkFaults(conformance.NetworkFaults):
    test_limit_s = 290.0


class TestNames(conformance.Names): ...


@pytest.mark.fault("server-clock", "leader")
class TestTimes(conformance.Times): ...
