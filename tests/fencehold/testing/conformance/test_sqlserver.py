"""SQL Server and the conformance suite."""

import contextlib

import mssql_python
import pytest

from fencehold.model.items.rules import ItemKey
from fencehold.ports.items import ItemStore
from fencehold.testing import conformance
from fencehold.testing.conformance.items.locks import locked, started
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_TABLE, Harness
from tests.fencehold.testing.conformance.sqlserver_harness import SqlServerHarness
from tests.servers.sqlserver import SqlServer, open_connection

pytestmark = pytest.mark.limit(300)  # some servers take a second to read a statement for the first time

#: What can only be where a statement with READPAST does not wait for a row that another session has locked ...
PASSING_OVER = (
    "test_a_renewal_is_not_lost_to_a_row_that_is_locked_for_a_moment",
    "test_a_row_that_stays_locked_makes_a_verb_unavailable_and_changes_nothing",
    "test_an_item_that_another_session_has_locked_is_left_out_and_not_waited_for",
)
#: ... or only where it waits all the same ...
WAITING_ANYWAY = (
    "test_a_renewal_that_had_to_wait_past_its_lease_does_not_revive_it",
    "test_an_item_that_left_its_state_while_it_was_waited_for_is_not_taken",
)
#: ... and where who reads does not wait for who writes: with READ_COMMITTED_SNAPSHOT on.
READING_VERSIONS = ("test_who_asks_for_what_another_holds_does_not_wait_for_its_row",)


def locks_of(url: str) -> tuple[bool, bool]:
    """Whether a row that is locked is passed over by READPAST, and whether it can be read."""
    writer, reader = open_connection(url), open_connection(url)
    with contextlib.closing(writer), contextlib.closing(reader):
        writer.cursor().execute("CREATE TABLE probe (id integer PRIMARY KEY, n integer)")
        writer.cursor().execute("INSERT INTO probe VALUES (1, 1)")
        writer.cursor().execute("BEGIN TRANSACTION; UPDATE probe SET n = 2")
        reader.cursor().execute("SET LOCK_TIMEOUT 200")
        hints = "WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK)"
        passed = not reader.cursor().execute(f"SELECT n FROM probe {hints}").fetchall()
        try:
            can_read = bool(reader.cursor().execute("SELECT n FROM probe").fetchall())
        except mssql_python.Error:
            can_read = False
        writer.cursor().execute("ROLLBACK TRANSACTION; DROP TABLE probe")
    return passed, can_read


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same reason: what a server needs a second for cannot be had in a quarter."""
    for name, seconds in {"faults.LIMIT_S": 2.0, "faults.TERM_S": 4.0, "fences.TRY_LIMIT_S": 2.0}.items():
        monkeypatch.setattr(f"fencehold.testing.conformance.leases.{name}", seconds)


@pytest.fixture
def harness(mssql_url: str, mssql_server: SqlServer) -> Harness:
    return SqlServerHarness(mssql_url, mssql_server.fresh_database)


class TestSqlServer(conformance.Suite, harness=SqlServerHarness, limit_s=290.0):
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

    @pytest.mark.fault("reset", "leader")
    @pytest.mark.fault("reset", "fence")
    @pytest.mark.fault("frozen-tcp", "leader")
    @pytest.mark.fault("frozen-tcp", "fence")
    class TestNetworkFaults(conformance.NetworkFaults): ...

    @pytest.mark.fault("server-clock", "leader")
    class TestTimes(conformance.Times): ...

    @pytest.mark.fault("slow", "items")
    class TestItemLocks(conformance.ItemLocks):
        """As far as this server's locks go: not every server that speaks T-SQL takes its hints."""

        @pytest.fixture(autouse=True)
        def possible(self, request: pytest.FixtureRequest, mssql_url: str) -> None:
            name = request.function.__name__
            if name in (*PASSING_OVER, *WAITING_ANYWAY, *READING_VERSIONS):
                passed, can_read = locks_of(mssql_url)
                if name in PASSING_OVER and not passed:
                    pytest.skip("this server waits for a locked row also with READPAST")
                if name in WAITING_ANYWAY and passed:
                    pytest.skip("on this server a renewal waits for nobody")
                if name in READING_VERSIONS and not can_read:
                    pytest.skip("READ_COMMITTED_SNAPSHOT is off: who reads waits for who writes")

        async def test_a_renewal_that_had_to_wait_past_its_lease_does_not_revive_it(
            self, harness: Harness, items: ItemStore, key: ItemKey
        ) -> None:
            async with locked(harness) as other:
                waiting = await started(harness, items.leases.renew([key], LEASE_S, CALL_LIMIT_S))
                await harness.set_clock(START + LEASE)
                await other.commit()
                assert await waiting == {}

        async def test_an_item_that_left_its_state_while_it_was_waited_for_is_not_taken(
            self, harness: Harness, items: ItemStore, key: ItemKey
        ) -> None:
            assert await items.leases.break_leases([key], CALL_LIMIT_S) == {}
            async with locked(harness) as other:
                waiting = await started(harness, items.leases.next_for_state("NEW", 9, "bob", LEASE_S, CALL_LIMIT_S))
                await other.execute(f"UPDATE {ITEM_TABLE} SET state = 'SENT' WHERE id = 'deal'")
                await other.commit()
                assert await waiting == []

    @pytest.mark.fault("server-clock", "items")
    class TestItemTimes(conformance.ItemTimes): ...
