"""The memory store and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.memory_harness import MemoryHarness


@pytest.fixture
def harness() -> Harness:
    return MemoryHarness()


class TestRules(conformance.Rules): ...


class TestVerbs(conformance.Verbs): ...


class TestFences(conformance.Fences): ...


class TestPassingRenewals(conformance.PassingRenewals): ...


class TestWakeups(conformance.Wakeups): ...


class TestWalk(conformance.Walk): ...


class TestCrowd(conformance.Crowd): ...


class TestNames(conformance.Names): ...


class TestTimes(conformance.Times): ...
