"""The suite every backend must pass: subclass what the store has, give a `harness` fixture, run pytest.

    from fencehold.testing import conformance

    @pytest.fixture
    def harness(tmp_path):
        return MyHarness(tmp_path)

    class TestRules(conformance.Rules): ...
    class TestWalk(conformance.Walk): ...

| kind   | classes                          | for                                                     |
| ------ | -------------------------------- | ------------------------------------------------------- |
| rules  | Rules, Verbs, Fences             | every store                                             |
|        | PassingRenewals                  | stores with more than one writer                        |
|        | CallerFences, SyncFences         | stores with SQL                                         |
|        | Schemas                          | stores with SQL                                         |
|        | WaitingWriter                    | stores that lock rows                                   |
|        | Wakeups, or Silence              | stores that tell others of a change, or cannot          |
| walk   | Walk                             | every store                                             |
| crowd  | Crowd, ProcessCrowd              | every store; those that several processes can reach     |
| faults | Obstruction, NetworkFaults       | stores that can be blocked; those behind a network      |
| names  | Names                            | every store                                             |
| time   | Times                            | every store                                             |

The same for outboxes:

| kind   | classes                          | for                                                     |
| ------ | -------------------------------- | ------------------------------------------------------- |
| rules  | EventRules, EventVerbs           | every store                                             |
|        | EventDesks, EventDedupe          | every store                                             |
|        | EventCallers, EventConsumers     | stores with SQL                                         |
|        | EventSchemas                     | stores with SQL                                         |
|        | EventHintsHeard                  | stores that tell of added events                        |
|        | EventHintsOfCallers              | those with SQL                                          |
| walk   | EventWalk                        | every store                                             |
| crowd  | EventCrowd, EventProcessCrowd    | every store; those that several processes can reach     |
| names  | EventNames                       | every store                                             |

And for items:

| kind   | classes                          | for                                                     |
| ------ | -------------------------------- | ------------------------------------------------------- |
| rules  | ItemRules, ItemVerbs             | every store                                             |
|        | ItemBatches                      | every store                                             |
|        | ItemSchemas, ItemLocks           | with SQL; where a lock is on a row, not on the file     |
| walk   | ItemWalk                         | every store                                             |
| crowd  | ItemCrowd, ItemProcessCrowd      | every store; those that several processes can reach     |
| names  | ItemNames                        | every store                                             |
|        | ItemKinds                        | stores that can list the kinds there are                |
| time   | ItemTimes                        | every store                                             |
"""

import pytest

_MODULES = (
    "caller_fences", "crowd", "events_callers", "events_crowd", "events_dedupe", "events_drain", "events_hints",
    "events_names", "events_oracle", "events_pair", "events_rules", "events_schemas", "events_verbs", "events_walk",
    "faults", "fences", "items_batches", "items_crowd", "items_drain", "items_kinds", "items_locks", "items_names",
    "items_oracle", "items_pair", "items_rules", "items_schemas", "items_times", "items_verbs", "items_walk", "names",
    "oracle", "rules", "schemas", "suite", "sync_fences", "times", "verbs", "waiting_writer", "wakeups", "walk",
)  # fmt: skip
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES))

from fencehold.testing.conformance.caller_fences import CallerFences  # noqa: E402
from fencehold.testing.conformance.crowd import Crowd, ProcessCrowd  # noqa: E402
from fencehold.testing.conformance.events_callers import EventCallers  # noqa: E402
from fencehold.testing.conformance.events_crowd import EventCrowd, EventProcessCrowd  # noqa: E402
from fencehold.testing.conformance.events_dedupe import EventConsumers, EventDedupe  # noqa: E402
from fencehold.testing.conformance.events_hints import EventHintsHeard, EventHintsOfCallers  # noqa: E402
from fencehold.testing.conformance.events_names import EventNames  # noqa: E402
from fencehold.testing.conformance.events_rules import EventRules  # noqa: E402
from fencehold.testing.conformance.events_schemas import EventSchemas  # noqa: E402
from fencehold.testing.conformance.events_verbs import EventDesks, EventVerbs  # noqa: E402
from fencehold.testing.conformance.events_walk import EventWalk  # noqa: E402
from fencehold.testing.conformance.faults import NetworkFaults, Obstruction  # noqa: E402
from fencehold.testing.conformance.fences import Fences, PassingRenewals  # noqa: E402
from fencehold.testing.conformance.items_batches import ItemBatches  # noqa: E402
from fencehold.testing.conformance.items_crowd import ItemCrowd, ItemProcessCrowd  # noqa: E402
from fencehold.testing.conformance.items_kinds import ItemKinds  # noqa: E402
from fencehold.testing.conformance.items_locks import ItemLocks  # noqa: E402
from fencehold.testing.conformance.items_names import ItemNames  # noqa: E402
from fencehold.testing.conformance.items_rules import ItemRules  # noqa: E402
from fencehold.testing.conformance.items_schemas import ItemSchemas  # noqa: E402
from fencehold.testing.conformance.items_times import ItemTimes  # noqa: E402
from fencehold.testing.conformance.items_verbs import ItemVerbs  # noqa: E402
from fencehold.testing.conformance.items_walk import ItemWalk  # noqa: E402
from fencehold.testing.conformance.names import Names  # noqa: E402
from fencehold.testing.conformance.rules import Rules  # noqa: E402
from fencehold.testing.conformance.schemas import Schemas  # noqa: E402
from fencehold.testing.conformance.sync_fences import SyncFences  # noqa: E402
from fencehold.testing.conformance.times import Times  # noqa: E402
from fencehold.testing.conformance.verbs import Verbs  # noqa: E402
from fencehold.testing.conformance.waiting_writer import WaitingWriter  # noqa: E402
from fencehold.testing.conformance.wakeups import Silence, Wakeups  # noqa: E402
from fencehold.testing.conformance.walk import Walk  # noqa: E402

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
    "Walk",
    "Crowd",
    "ProcessCrowd",
    "Obstruction",
    "NetworkFaults",
    "Names",
    "Times",
    "EventRules",
    "EventVerbs",
    "EventDesks",
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
