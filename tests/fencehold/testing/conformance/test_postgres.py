"""Every PostgreSQL and the conformance suite; of outbox and items what depends on how a server locks and plans."""

from collections.abc import Callable

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.fencehold.testing.conformance.postgres_harness import NEWEST_ONLY, PostgresHarness
from tests.servers.postgres import AnyPostgres


@pytest.fixture
def harness(every_postgres: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> Harness:
    return PostgresHarness(database_of(every_postgres))


ELSEWHERE = dict.fromkeys(NEWEST_ONLY, "is in test_postgres_newest.py: it is the same on every version")


class TestPostgres(conformance.Suite, harness=PostgresHarness, leave_out=ELSEWHERE):
    @pytest.mark.fault("cancel", "fence")
    class TestFences(conformance.Fences): ...

    @pytest.mark.fault("slow", "fence")
    class TestWaitingWriter(conformance.WaitingWriter): ...

    @pytest.mark.fault("reset", "leader")
    @pytest.mark.fault("reset", "fence")
    @pytest.mark.fault("frozen-tcp", "leader")
    @pytest.mark.fault("frozen-tcp", "fence")
    class TestNetworkFaults(conformance.NetworkFaults): ...

    @pytest.mark.fault("server-clock", "leader")
    class TestTimes(conformance.Times): ...

    @pytest.mark.fault("slow", "items")
    class TestItemLocks(conformance.ItemLocks): ...
