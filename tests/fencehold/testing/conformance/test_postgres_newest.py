"""The newest PostgreSQL and the rest of the conformance suite: what is the same on every version."""

from collections.abc import Callable

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.fencehold.testing.conformance.postgres_harness import NEWEST_ONLY, PostgresHarness
from tests.servers.postgres import AnyPostgres


@pytest.fixture
def harness(postgres_server: AnyPostgres, database_of: Callable[[AnyPostgres], str]) -> Harness:
    return PostgresHarness(database_of(postgres_server))


class TestPostgresNewest(conformance.Suite, harness=PostgresHarness, only=NEWEST_ONLY):
    @pytest.mark.fault("server-clock", "items")
    class TestItemTimes(conformance.ItemTimes): ...
