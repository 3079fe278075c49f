"""Runs one schedule, or many on several processes; sums up the results and shows how to repeat a failure.

A schedule is one simulated run, given by its kind, its seed and, if any, the fault that is planted in the product.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencehold.testing.simulation.faults import OF_ITEMS, OF_LEASES, OF_LOCKS, OF_OUTBOX, Faults, planted
from fencehold.testing.simulation.items.schedule import ItemSchedule
from fencehold.testing.simulation.leases.schedule import LeaseSchedule
from fencehold.testing.simulation.locks.schedule import LockSchedule
from fencehold.testing.simulation.outbox.schedule import OutboxSchedule
from fencehold.testing.simulation.schedule import Schedule


@dataclass(frozen=True)
class Kind:
    schedule: type[Schedule]
    faults: Faults


LEASES = "leases"
KINDS: Mapping[str, Kind] = {
    LEASES: Kind(LeaseSchedule, OF_LEASES),
    "locks": Kind(LockSchedule, OF_LOCKS),
    "outbox": Kind(OutboxSchedule, OF_OUTBOX),
    "items": Kind(ItemSchedule, OF_ITEMS),
}


@dataclass(frozen=True)
class Outcome:
    """The result of one schedule (one simulated run), always the same for the same kind, seed and planted fault.

    `violation` is None if the run was clean; `counts` says how often each thing happened in it.
    """

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
    """Run the schedule of this seed to its end, or to the first violation, and return its result.

    `fault` is the name of an error that is planted in the product; `trace` keeps the list of what happened.
    """
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


SEEDS_PER_TASK = 50
TRACE_LINES_MAX = 60
#: The faults that can be planted, by kind.
FAULTS = {name: tuple(kind.faults) for name, kind in KINDS.items()}

__all__ = ["FAULTS", "Outcome", "Sweep", "replay_command", "simulate", "sweep"]


@dataclass
class Sweep:
    """The totals of many schedules; `failed` is the failed one with the lowest seed among those found, if any."""

    kind: str = LEASES
    fault: str | None = None
    seeds: int = 0
    virtual_s: float = 0.0
    counts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: float = 0.0
    rules_fired: set[str] = field(default_factory=set)
    failed: Outcome | None = None

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        for what, count in outcome.counts.items():
            self.counts[what] += count
        self.rules_fired |= outcome.rules_fired
        if outcome.violation is not None and (self.failed is None or outcome.seed < self.failed.seed):
            self.failed = outcome

    def __str__(self) -> str:
        rate = self.seeds / self.seconds if self.seconds else 0.0
        done = [f"{count:.0f} {what}" for what, count in sorted(self.counts.items())]
        return (
            f"{self.kind}: {self.seeds} schedules, {self.virtual_s / 3600:.1f} virtual hours in {self.seconds:.1f} s "
            f"({rate:.0f}/s): {', '.join(done)}"
        )


def sweep(seeds: range, fault: str | None = None, processes: int = 1, kind: str = LEASES) -> Sweep:
    """Run the schedules of these seeds and return their totals.

    Stop soon after the first one that breaks an invariant.
    """
    result = Sweep(kind, fault)
    began_s = time.perf_counter()
    parts = [seeds[start : start + SEEDS_PER_TASK] for start in range(0, len(seeds), SEEDS_PER_TASK)]
    with _mapped(functools.partial(_run_part, kind, fault), parts, processes) as outcomes:
        for part in outcomes:
            for outcome in part:
                result.add(outcome)
            if result.failed is not None:
                break
    result.seconds = time.perf_counter() - began_s
    return result


def _run_part(kind: str, fault: str | None, seeds: range) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcomes.append(simulate(seed, fault, kind=kind))
        if outcomes[-1].violation is not None:
            break
    return outcomes


@contextmanager
def _mapped(
    work: functools.partial[list[Outcome]], parts: Sequence[range], processes: int
) -> Iterator[Iterator[list[Outcome]]]:
    if processes <= 1 or len(parts) <= 1:
        yield map(work, parts)
        return
    # Not forked: the caller may have threads, and a fork copies their locks but not the threads.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield pool.imap(work, parts)


def replay_command(outcome: Outcome) -> str:
    fault = f" --fault {outcome.fault}" if outcome.fault else ""
    return f"python -m fencehold.testing.simulation --kind {outcome.kind} --seeds {outcome.seed}{fault} --trace"


def report(outcome: Outcome, lines_max: int = TRACE_LINES_MAX) -> str:
    """Return why a schedule failed, the end of its trace, and the command that repeats it, as one text."""
    lines = outcome.trace or simulate(outcome.seed, outcome.fault, trace=True, kind=outcome.kind).trace
    cut = [f"... {len(lines) - lines_max} lines before"] if len(lines) > lines_max else []
    return "\n".join(
        [
            f"{outcome.kind}, seed {outcome.seed}: {outcome.violation}", *cut, *lines[-lines_max:],
            f"replay: {replay_command(outcome)}",
        ]
    )  # fmt: skip


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fencehold.testing.simulation")
    parser.add_argument("--kind", choices=KINDS, help="what is simulated (default: each in turn)")
    parser.add_argument("--seeds", type=_seeds, default=range(10_000), help="FIRST:END, or one seed (default 0:10000)")
    parser.add_argument("--fault", choices=sorted({fault for faults in FAULTS.values() for fault in faults}))
    parser.add_argument("--trace", action="store_true", help="print what happens, seed by seed")
    parser.add_argument("--processes", type=int, default=min(2, multiprocessing.cpu_count()))
    given = parser.parse_args(arguments)
    kinds = [given.kind] if given.kind else [kind for kind in KINDS if given.fault in (None, *FAULTS[kind])]
    if given.fault and given.fault not in FAULTS[kinds[0]]:
        parser.error(f"{kinds[0]} have no fault {given.fault}: choose from {', '.join(FAULTS[kinds[0]])}")
    for kind in kinds:
        if given.trace:
            code = _print_traces(given.seeds, given.fault, kind)
        else:
            code = _print_sum(sweep(given.seeds, given.fault, given.processes, kind))
        if code:
            return code
    return 0


def _print_sum(result: Sweep) -> int:
    print(result)  # noqa: T201
    if result.failed is None:
        return 0
    print(report(result.failed))  # noqa: T201
    return 1


def _print_traces(seeds: range, fault: str | None, kind: str) -> int:
    for seed in seeds:
        outcome = simulate(seed, fault, trace=True, kind=kind)
        print(*outcome.trace, f"seed {seed}: {outcome.violation or 'clean'}", sep="\n")  # noqa: T201
        if outcome.violation is not None:
            return 1
    return 0
