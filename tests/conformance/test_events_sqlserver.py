"""Outboxes on SQL Server and the conformance suite; it tells nobody of added events, so hints are not asked for."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.sqlserver_harness import SqlServerHarness
from tests.servers.sqlserver import SqlServer


@pytest.fixture
def harness(mssql_url: str, mssql_server: SqlServer) -> Harness:
    return SqlServerHarness(mssql_url, mssql_server.fresh_database)


class TestEventRules(conformance.EventRules): ...


class TestEventVerbs(conformance.EventVerbs): ...


class TestEventAdmins(conformance.EventAdmins): ...


class TestEventDedupe(conformance.EventDedupe): ...


class TestEventCallers(conformance.EventCallers): ...


class TestEventConsumers(conformance.EventConsumers): ...


class TestEventSchemas(conformance.EventSchemas): ...


class TestEventWalk(conformance.EventWalk): ...


class TestEventCrowd(conformance.EventCrowd): ...


class TestEventProcessCrowd(conformance.EventProcessCrowd): ...


class TestEventNames(conformance.EventNames): ...
