"""SQLite and the conformance suite."""

from pathlib import Path

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.fencehold.testing.conformance.sqlite_harness import SqliteHarness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return SqliteHarness(tmp_path / "conformance.db")


class TestSqlite(conformance.Suite, harness=SqliteHarness):
    @pytest.mark.fault("slow", "leader")
    class TestObstruction(conformance.Obstruction): ...

    @pytest.mark.fault("server-clock", "leader")
    @pytest.mark.fault("server-clock", "fence")
    class TestTimes(conformance.Times): ...

    @pytest.mark.fault("server-clock", "items")
    class TestItemTimes(conformance.ItemTimes): ...
