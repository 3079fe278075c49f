"""Items in memory and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.memory_harness import MemoryHarness


@pytest.fixture
def harness() -> Harness:
    return MemoryHarness()


class TestItemRules(conformance.ItemRules): ...


class TestItemVerbs(conformance.ItemVerbs): ...


class TestItemBatches(conformance.ItemBatches): ...


class TestItemWalk(conformance.ItemWalk): ...


class TestItemCrowd(conformance.ItemCrowd): ...


class TestItemNames(conformance.ItemNames): ...


class TestItemTimes(conformance.ItemTimes): ...


class TestItemKinds(conformance.ItemKinds): ...
