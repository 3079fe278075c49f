"""Items on SQLite and the conformance suite."""

from pathlib import Path

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.sqlite_harness import SqliteHarness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return SqliteHarness(tmp_path / "conformance.db")


class TestItemRules(conformance.ItemRules): ...


class TestItemVerbs(conformance.ItemVerbs): ...


class TestItemBatches(conformance.ItemBatches): ...


class TestItemWalk(conformance.ItemWalk): ...


class TestItemCrowd(conformance.ItemCrowd): ...


class TestItemProcessCrowd(conformance.ItemProcessCrowd): ...


class TestItemNames(conformance.ItemNames): ...


@pytest.mark.fault("server-clock", "items")
class TestItemTimes(conformance.ItemTimes): ...


class TestItemSchemas(conformance.ItemSchemas): ...


class TestItemKinds(conformance.ItemKinds): ...
