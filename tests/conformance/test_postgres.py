"""Every PostgreSQL and the conformance suite."""

from collections.abc import Callable

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.postgres_harness import PostgresHarness
from tests.servers.postgres import AnyPostgres


@pytest.fixture
def harness(every_postgres: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> Harness:
    return PostgresHarness(database_of(every_postgres))


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


@pytest.mark.fault("cancel", "fence")
class TestFences(conformance.Fences): ...


class TestPassingRenewals(conformance.PassingRenewals): ...


class TestSyncFences(conformance.SyncFences): ...


class TestCallerFences(conformance.CallerFences): ...


@pytest.mark.fault("slow", "fence")
class TestWaitingWriter(conformance.WaitingWriter): ...


class TestSchemas(conformance.Schemas): ...


class TestWakeups(conformance.Wakeups): ...


class TestWalk(conformance.Walk): ...


class TestCrowd(conformance.Crowd): ...


class TestProcessCrowd(conformance.ProcessCrowd): ...


@pytest.mark.fault("reset", "leader")
@pytest.mark.fault("reset", "fence")
@pytest.mark.fault("frozen-tcp", "leader")
@pytest.mark.fault("frozen-tcp", "fence")
class TestNetworkFaults(conformance.NetworkFaults): ...


class TestNames(conformance.Names): ...


@pytest.mark.fault("server-clock", "leader")
class TestTimes(conformance.Times): ...
