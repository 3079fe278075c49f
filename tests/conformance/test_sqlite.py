"""SQLite and the conformance suite."""

from pathlib import Path

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.sqlite_harness import SqliteHarness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return SqliteHarness(tmp_path / "conformance.db")


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


class TestFences(conformance.Fences): ...


class TestSyncFences(conformance.SyncFences): ...


class TestCallerFences(conformance.CallerFences): ...


class TestSchemas(conformance.Schemas): ...


class TestSilence(conformance.Silence): ...


class TestWalk(conformance.Walk): ...


class TestCrowd(conformance.Crowd): ...


class TestProcessCrowd(conformance.ProcessCrowd): ...


@pytest.mark.fault("slow", "leader")
class TestObstruction(conformance.Obstruction): ...


class TestNames(conformance.Names): ...


@pytest.mark.fault("server-clock", "leader")
@pytest.mark.fault("server-clock", "fence")
class TestTimes(conformance.Times): ...
