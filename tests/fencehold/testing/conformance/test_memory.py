"""The memory store and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.fencehold.testing.conformance.memory_harness import MemoryHarness


@pytest.fixture
def harness() -> Harness:
    return MemoryHarness()


class TestMemory(conformance.Suite, harness=MemoryHarness): ...
