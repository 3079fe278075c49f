"""What can be simulated, and one schedule of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencehold.testing.simulation.faults import Faults, planted
from fencehold.testing.simulation.items import faults as item_faults
from fencehold.testing.simulation.items.schedule import ItemSchedule
from fencehold.testing.simulation.leases import faults as lease_faults
from fencehold.testing.simulation.leases.schedule import LeaseSchedule
from fencehold.testing.simulation.locks import faults as lock_faults
from fencehold.testing.simulation.locks.schedule import LockSchedule
from fencehold.testing.simulation.outbox import faults as outbox_faults
from fencehold.testing.simulation.outbox.schedule import OutboxSchedule
from fencehold.testing.simulation.schedule import Schedule


@dataclass(frozen=True)
class Kind:
    schedule: type[Schedule]
    faults: Faults


LEASES = "leases"
KINDS: Mapping[str, Kind] = {
    LEASES: Kind(LeaseSchedule, lease_faults.FAULTS),
    "locks": Kind(LockSchedule, lock_faults.FAULTS),
    "outbox": Kind(OutboxSchedule, outbox_faults.FAULTS),
    "items": Kind(ItemSchedule, item_faults.FAULTS),
}


@dataclass(frozen=True)
class Outcome:
    """The result of one schedule, always the same for a kind, a seed and a fault. `counts`: what happened in it."""

    kind: str
    seed: int
    fault: str | None
    violation: str | None
    virtual_s: float
    counts: Mapping[str, float]
    callbacks: int
    rules_fired: frozenset[str]
    trace: tuple[str, ...] = ()


def simulate(seed: int, fault: str | None = None, trace: bool = False, kind: str = LEASES) -> Outcome:
    """Run the schedule of this seed to its end, or to the first invariant that does not hold."""
    what = KINDS[kind]
    with planted(what.faults[fault] if fault else ()):
        schedule = what.schedule(seed, trace)
        try:
            violation = schedule.run()
        finally:
            schedule.loop.close()
    return Outcome(
        kind, seed, fault, violation, schedule.loop.time(), dict(schedule.referee.counts),
        schedule.loop.callbacks_run, what.schedule.rules & set(schedule.rules_fired), tuple(schedule.trace.lines),
    )  # fmt: skip
