"""Items on every PostgreSQL: what depends on how a server locks, plans and defines; the rest on the newest only."""

from collections.abc import Callable

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.postgres_harness import PostgresHarness
from tests.servers.postgres import AnyPostgres


@pytest.fixture
def harness(every_postgres: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> Harness:
    return PostgresHarness(database_of(every_postgres))


class TestItemRules(conformance.ItemRules): ...


class TestItemBatches(conformance.ItemBatches): ...


class TestItemWalk(conformance.ItemWalk): ...


class TestItemSchemas(conformance.ItemSchemas): ...


@pytest.mark.fault("slow", "items")
class TestItemLocks(conformance.ItemLocks): ...
