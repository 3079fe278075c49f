"""Items on the newest PostgreSQL: the rest of the conformance suite."""

from collections.abc import Callable

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.postgres_harness import PostgresHarness
from tests.servers.postgres import AnyPostgres


@pytest.fixture
def harness(postgres_server: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> Harness:
    return PostgresHarness(database_of(postgres_server))


class TestItemVerbs(conformance.ItemVerbs): ...


class TestItemCrowd(conformance.ItemCrowd): ...


class TestItemProcessCrowd(conformance.ItemProcessCrowd): ...


class TestItemNames(conformance.ItemNames): ...


@pytest.mark.fault("server-clock", "items")
class TestItemTimes(conformance.ItemTimes): ...


class TestItemKinds(conformance.ItemKinds): ...
