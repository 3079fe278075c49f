"""The suite every backend must pass: subclass the classes that fit the store, give a `harness` fixture, run pytest.

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
|        | Wakeups, or Silence              | stores that can notify others of a change, or cannot    |
| walk   | Walk                             | every store                                             |
| crowd  | Crowd, ProcessCrowd              | every store; those that several processes can reach     |
| faults | Obstruction, NetworkFaults       | stores that can be blocked; those behind a network      |
| names  | Names                            | every store                                             |
| time   | Times                            | every store                                             |

The same for outboxes:

| kind   | classes                          | for                                                     |
| ------ | -------------------------------- | ------------------------------------------------------- |
| rules  | EventRules, EventVerbs           | every store                                             |
|        | EventAdmins, EventDedupe          | every store                                             |
|        | EventCallers, EventConsumers     | stores with SQL                                         |
|        | EventSchemas                     | stores with SQL                                         |
|        | EventHintsHeard                  | stores that notify of added events                      |
|        | EventHintsOfCallers              | those of them with SQL                                  |
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

pytest.register_assert_rewrite(*(f"{__name__}.{room}" for room in ("suite", "leases", "outbox", "items")))

from fencehold.testing.conformance.items.batches import ItemBatches  # noqa: E402
from fencehold.testing.conformance.items.crowd import ItemCrowd, ItemProcessCrowd  # noqa: E402
from fencehold.testing.conformance.items.kinds import ItemKinds  # noqa: E402
from fencehold.testing.conformance.items.locks import ItemLocks  # noqa: E402
from fencehold.testing.conformance.items.names import ItemNames  # noqa: E402
from fencehold.testing.conformance.items.rules import ItemRules  # noqa: E402
from fencehold.testing.conformance.items.schemas import ItemSchemas  # noqa: E402
from fencehold.testing.conformance.items.times import ItemTimes  # noqa: E402
from fencehold.testing.conformance.items.verbs import ItemVerbs  # noqa: E402
from fencehold.testing.conformance.items.walk import ItemWalk  # noqa: E402
from fencehold.testing.conformance.leases.caller_fences import CallerFences  # noqa: E402
from fencehold.testing.conformance.leases.crowd import Crowd, ProcessCrowd  # noqa: E402
from fencehold.testing.conformance.leases.faults import NetworkFaults, Obstruction  # noqa: E402
from fencehold.testing.conformance.leases.fences import Fences, PassingRenewals  # noqa: E402
from fencehold.testing.conformance.leases.names import Names  # noqa: E402
from fencehold.testing.conformance.leases.rules import Rules  # noqa: E402
from fencehold.testing.conformance.leases.schemas import Schemas  # noqa: E402
from fencehold.testing.conformance.leases.sync_fences import SyncFences  # noqa: E402
from fencehold.testing.conformance.leases.times import Times  # noqa: E402
from fencehold.testing.conformance.leases.verbs import Verbs  # noqa: E402
from fencehold.testing.conformance.leases.waiting_writer import WaitingWriter  # noqa: E402
from fencehold.testing.conformance.leases.wakeups import Silence, Wakeups  # noqa: E402
from fencehold.testing.conformance.leases.walk import Walk  # noqa: E402
from fencehold.testing.conformance.outbox.callers import EventCallers  # noqa: E402
from fencehold.testing.conformance.outbox.crowd import EventCrowd, EventProcessCrowd  # noqa: E402
from fencehold.testing.conformance.outbox.dedupe import EventConsumers, EventDedupe  # noqa: E402
from fencehold.testing.conformance.outbox.hints import EventHintsHeard, EventHintsOfCallers  # noqa: E402
from fencehold.testing.conformance.outbox.names import EventNames  # noqa: E402
from fencehold.testing.conformance.outbox.rules import EventRules  # noqa: E402
from fencehold.testing.conformance.outbox.schemas import EventSchemas  # noqa: E402
from fencehold.testing.conformance.outbox.verbs import EventAdmins, EventVerbs  # noqa: E402
from fencehold.testing.conformance.outbox.walk import EventWalk  # noqa: E402

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
