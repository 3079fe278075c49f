"""The suite every backend must pass: one class per backend, one harness, plain pytest.

    from fencehold.testing import conformance

    @pytest.fixture
    def harness(tmp_path):
        return MyHarness(tmp_path)

    class TestMyStore(conformance.Suite, harness=MyHarness): ...

`python -m fencehold.testing.conformance test_my_store.py` runs it, and prints which rules were proved on which store.

| kind   | leases                               | outbox                               | items                 |
| ------ | ------------------------------------ | ------------------------------------ | --------------------- |
| rules  | Rules, Verbs, Absences               | EventRules, EventVerbs, EventAdmins, | ItemRules, ItemVerbs, |
|        |                                      | EventDedupe                          | ItemBatches           |
| fences | Fences, PassingRenewals, SyncFences, | EventCallers, EventConsumers         |                       |
|        | CallerFences, WaitingWriter          |                                      |                       |
| locks  |                                      |                                      | ItemLocks             |
| tables | Schemas                              | EventSchemas                         | ItemSchemas           |
| hints  | Wakeups or Silence                   | EventHintsHeard, EventHintsOfCallers |                       |
| walk   | Walk                                 | EventWalk                            | ItemWalk              |
| crowd  | Crowd, ProcessCrowd                  | EventCrowd, EventProcessCrowd        | ItemCrowd,            |
|        |                                      |                                      | ItemProcessCrowd      |
| faults | Obstruction, NetworkFaults           |                                      |                       |
| names  | Names                                | EventNames                           | ItemNames, ItemKinds  |
| time   | Times                                |                                      | ItemTimes             |

What a class, or a single test, needs of a store is written at it: `@needs(Can.FENCES)`.
"""

import pytest

ROOMS = ("suite", "oracle", "processes", "leases", "outbox", "items")
pytest.register_assert_rewrite(*(f"{__name__}.{room}" for room in ROOMS))

from fencehold.testing.conformance import classes  # noqa: E402
from fencehold.testing.conformance.classes import *  # noqa: E402, F403 - each name that classes.py exports
from fencehold.testing.conformance.classes import Suite  # noqa: E402

__all__ = ["Suite"]
__all__ += classes.__all__
