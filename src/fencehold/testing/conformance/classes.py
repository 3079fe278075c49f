"""Every class of tests of the suite, and `Suite`: a subclass of Suite has each class that applies to one backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from fencehold.testing.conformance.items.crowd import ItemCrowd, ItemProcessCrowd
from fencehold.testing.conformance.items.locks import ItemLocks
from fencehold.testing.conformance.items.names import ItemKinds, ItemNames
from fencehold.testing.conformance.items.rules import ItemRules
from fencehold.testing.conformance.items.schemas import ItemSchemas
from fencehold.testing.conformance.items.times import ItemTimes
from fencehold.testing.conformance.items.verbs import ItemBatches, ItemVerbs
from fencehold.testing.conformance.items.walk import ItemWalk
from fencehold.testing.conformance.leases.caller_fences import CallerFences, WaitingWriter
from fencehold.testing.conformance.leases.crowd import Crowd, ProcessCrowd
from fencehold.testing.conformance.leases.faults import NetworkFaults, Obstruction
from fencehold.testing.conformance.leases.fences import Fences, PassingRenewals, SyncFences
from fencehold.testing.conformance.leases.names import Names
from fencehold.testing.conformance.leases.parts import Absences, Silence, Wakeups
from fencehold.testing.conformance.leases.rules import Rules
from fencehold.testing.conformance.leases.schemas import Schemas
from fencehold.testing.conformance.leases.times import Times
from fencehold.testing.conformance.leases.verbs import Verbs
from fencehold.testing.conformance.leases.walk import Walk
from fencehold.testing.conformance.outbox.callers import EventCallers, EventConsumers
from fencehold.testing.conformance.outbox.crowd import EventCrowd, EventProcessCrowd
from fencehold.testing.conformance.outbox.hints import EventHintsHeard, EventHintsOfCallers
from fencehold.testing.conformance.outbox.names import EventNames
from fencehold.testing.conformance.outbox.rules import EventRules
from fencehold.testing.conformance.outbox.schemas import EventSchemas
from fencehold.testing.conformance.outbox.verbs import EventAdmins, EventDedupe, EventVerbs
from fencehold.testing.conformance.outbox.walk import EventWalk
from fencehold.testing.conformance.suite import HarnessTests, why_not
from fencehold.testing.harness import Harness, Traits

__all__ = [
    "Rules",
    "Verbs",
    "Fences",
    "PassingRenewals",
    "SyncFences",
    "CallerFences",
    "WaitingWriter",
    "Schemas",
    "Wakeups",
    "Silence",
    "Absences",
    "Walk",
    "Crowd",
    "ProcessCrowd",
    "Obstruction",
    "NetworkFaults",
    "Names",
    "Times",
    "EventRules",
    "EventVerbs",
    "EventAdmins",
    "EventDedupe",
    "EventCallers",
    "EventConsumers",
    "EventSchemas",
    "EventHintsHeard",
    "EventHintsOfCallers",
    "EventWalk",
    "EventCrowd",
    "EventProcessCrowd",
    "EventNames",
    "ItemRules",
    "ItemVerbs",
    "ItemBatches",
    "ItemSchemas",
    "ItemLocks",
    "ItemWalk",
    "ItemCrowd",
    "ItemProcessCrowd",
    "ItemKinds",
    "ItemNames",
    "ItemTimes",
]

CLASSES: tuple[type[HarnessTests], ...] = tuple(globals()[name] for name in __all__)


NOTHING: Mapping[str, str] = MappingProxyType({})


class Suite:
    """The whole suite on one backend: classes inside a class, which pytest collects as it collects any other.

        class TestSqlite(conformance.Suite, harness=SqliteHarness):
            @pytest.mark.slow
            class TestWalk(conformance.Walk):
                test_limit_s = 120.0

    The traits of `harness` declare what the store can do, and tests that need more are not collected. The fixture
    `harness`, in the module or in the class, gives each test a harness of its own. A class in the body, such as
    `TestWalk`, replaces the suite's class of that name: for marks, a limit, or more tests. `only` names the classes to
    collect. `leave_out` maps classes ("ItemCrowd") or tests ("ItemCrowd.test_...") that are not to be collected to the
    reason. `limit_s` is the time limit of each test. Raises TypeError if a name is unknown, or names a class or test
    that does not apply to the store anyway.
    """

    traits: ClassVar[Traits]
    not_collected: ClassVar[dict[str, str]]  # the reason, by name as in `leave_out`

    def __init_subclass__(
        cls,
        *,
        harness: type[Harness],
        only: Collection[str] = (),
        leave_out: Mapping[str, str] = NOTHING,
        limit_s: float | None = None,
    ) -> None:
        super().__init_subclass__()
        cls.traits = harness.traits
        own = {tests.__name__ for tests in CLASSES if f"Test{tests.__name__}" in vars(cls)}
        reasons = {name: why_not(part, harness.traits.can) for tests in CLASSES for name, part in parts(tests)}
        for name in (*own, *only, *leave_out):
            if reasons.get(name, "is no part of the suite"):
                raise TypeError(f"{cls.__name__}: {name} {reasons.get(name, 'is no part of the suite')}")
        others = [tests.__name__ for tests in CLASSES if only and tests.__name__ not in only]
        reasons |= dict(leave_out) | dict.fromkeys(others, "is left to another entry")
        whole = {name for name, why in reasons.items() if why and "." not in name}
        cls.not_collected = {
            name: why for name, why in reasons.items() if why and (name in whole or name.partition(".")[0] not in whole)
        }
        for tests in CLASSES:
            if tests.__name__ not in cls.not_collected:
                cls._add(tests, limit_s)

    @classmethod
    def _add(cls, tests: type[HarnessTests], limit_s: float | None) -> None:
        """Add this class of tests to the suite.

        Its tests that do not apply are set to None, so that pytest skips them.
        """
        name = f"Test{tests.__name__}"
        part: Any = vars(cls).get(name) or type(name, (tests,), {"__module__": cls.__module__})
        part.suite = cls
        if limit_s is not None and "test_limit_s" not in vars(part):
            part.test_limit_s = limit_s
        for full_name, _ in parts(tests):
            if full_name in cls.not_collected:
                setattr(part, full_name.partition(".")[2], None)
        setattr(cls, name, part)


def parts(tests: type[HarnessTests]) -> Iterator[tuple[str, object]]:
    """Yield the class, and then each of its tests, each with its name."""
    yield tests.__name__, tests
    for name in dir(tests):
        if name.startswith("test_") and callable(getattr(tests, name)):
            yield f"{tests.__name__}.{name}", getattr(tests, name)
