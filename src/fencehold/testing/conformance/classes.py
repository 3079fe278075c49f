"""Every class of the suite."""

from __future__ import annotations

from fencehold.testing.conformance.items.batches import ItemBatches
from fencehold.testing.conformance.items.crowd import ItemCrowd, ItemProcessCrowd
from fencehold.testing.conformance.items.locks import ItemLocks
from fencehold.testing.conformance.items.names import ItemKinds, ItemNames
from fencehold.testing.conformance.items.rules import ItemRules
from fencehold.testing.conformance.items.schemas import ItemSchemas
from fencehold.testing.conformance.items.times import ItemTimes
from fencehold.testing.conformance.items.verbs import ItemVerbs
from fencehold.testing.conformance.items.walk import ItemWalk
from fencehold.testing.conformance.leases.absences import Absences
from fencehold.testing.conformance.leases.caller_fences import CallerFences
from fencehold.testing.conformance.leases.crowd import Crowd, ProcessCrowd
from fencehold.testing.conformance.leases.faults import NetworkFaults, Obstruction
from fencehold.testing.conformance.leases.fences import Fences, PassingRenewals, SyncFences
from fencehold.testing.conformance.leases.names import Names
from fencehold.testing.conformance.leases.rules import Rules
from fencehold.testing.conformance.leases.schemas import Schemas
from fencehold.testing.conformance.leases.times import Times
from fencehold.testing.conformance.leases.verbs import Verbs
from fencehold.testing.conformance.leases.waiting_writer import WaitingWriter
from fencehold.testing.conformance.leases.wakeups import Silence, Wakeups
from fencehold.testing.conformance.leases.walk import Walk
from fencehold.testing.conformance.outbox.callers import EventCallers
from fencehold.testing.conformance.outbox.crowd import EventCrowd, EventProcessCrowd
from fencehold.testing.conformance.outbox.dedupe import EventConsumers, EventDedupe
from fencehold.testing.conformance.outbox.hints import EventHintsHeard, EventHintsOfCallers
from fencehold.testing.conformance.outbox.names import EventNames
from fencehold.testing.conformance.outbox.rules import EventRules
from fencehold.testing.conformance.outbox.schemas import EventSchemas
from fencehold.testing.conformance.outbox.verbs import EventAdmins, EventVerbs
from fencehold.testing.conformance.outbox.walk import EventWalk
from fencehold.testing.conformance.suite import HarnessTests

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
