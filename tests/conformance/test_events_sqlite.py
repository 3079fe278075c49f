"""Outboxes on SQLite and the conformance suite."""

from pathlib import Path

import pytest

from fencehold.testing import conformance
from fencehold.testing.harness import Harness
from tests.conformance.sqlite_harness import SqliteHarness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return SqliteHarness(tmp_path / "conformance.db")


class TestEventRules(conformance.EventRules): ...


class TestEventVerbs(conformance.EventVerbs): ...


class TestEventAdmins(conformance.EventAdmins): ...


class TestEventDedupe(conformance.EventDedupe): ...


class TestEventCallers(conformance.EventCallers): ...


class TestEventConsumers(conformance.EventConsumers): ...


class TestEventSchemas(conformance.EventSchemas): ...


class TestEventHintsHeard(conformance.EventHintsHeard): ...


class TestEventHintsOfCallers(conformance.EventHintsOfCallers): ...


class TestEventWalk(conformance.EventWalk): ...


class TestEventCrowd(conformance.EventCrowd): ...


class TestEventProcessCrowd(conformance.EventProcessCrowd): ...


class TestEventNames(conformance.EventNames): ...
