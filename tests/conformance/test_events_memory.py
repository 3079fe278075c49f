"""Outboxes in memory and the conformance suite."""

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.memory_harness import MemoryHarness


@pytest.fixture
def harness() -> Harness:
    return MemoryHarness()


class TestEventRules(conformance.EventRules): ...


class TestEventVerbs(conformance.EventVerbs): ...


class TestEventAdmins(conformance.EventAdmins): ...


class TestEventDedupe(conformance.EventDedupe): ...


class TestEventHintsHeard(conformance.EventHintsHeard): ...


class TestEventWalk(conformance.EventWalk): ...


class TestEventCrowd(conformance.EventCrowd): ...


class TestEventNames(conformance.EventNames): ...
