"""Outboxes on the newest PostgreSQL: the rest of the conformance suite."""

from collections.abc import Callable

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.postgres_harness import PostgresHarness
from tests.servers.postgres import AnyPostgres


@pytest.fixture
def harness(postgres_server: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> Harness:
    return PostgresHarness(database_of(postgres_server))


class TestEventVerbs(conformance.EventVerbs): ...


class TestEventAdmins(conformance.EventAdmins): ...


class TestEventDedupe(conformance.EventDedupe): ...


class TestEventCallers(conformance.EventCallers): ...


class TestEventConsumers(conformance.EventConsumers): ...


class TestEventHintsHeard(conformance.EventHintsHeard): ...


class TestEventHintsOfCallers(conformance.EventHintsOfCallers): ...


class TestEventProcessCrowd(conformance.EventProcessCrowd): ...


class TestEventNames(conformance.EventNames): ...


class TestEventCrowd(conformance.EventCrowd): ...
