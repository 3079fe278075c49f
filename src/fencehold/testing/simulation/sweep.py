"""Runs many schedules, one per seed, on several processes; sums up the results and shows how to repeat a failure."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencehold.testing.simulation.faults import PATCHES
from fencehold.testing.simulation.run import Outcome, simulate

SEEDS_PER_TASK = 50
TRACE_LINES_MAX = 60
FAULTS = tuple(PATCHES)

__all__ = ["FAULTS", "Outcome", "Sweep", "replay_command", "simulate", "sweep"]


@dataclass
class Sweep:
    """The totals of many schedules; `failed` is the failed one with the lowest seed among those found, if any."""

    fault: str | None = None
    seeds: int = 0
    virtual_s: float = 0.0
    led_s: float = 0.0
    terms: int = 0
    writes: int = 0
    refusals: int = 0
    seconds: float = 0.0
    rules_fired: set[str] = field(default_factory=set)
    failed: Outcome | None = None

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.led_s += outcome.led_s
        self.terms += outcome.terms
        self.writes += outcome.writes
        self.refusals += outcome.refusals
        self.rules_fired |= outcome.rules_fired
        if outcome.violation is not None and (self.failed is None or outcome.seed < self.failed.seed):
            self.failed = outcome

    def __str__(self) -> str:
        rate = self.seeds / self.seconds if self.seconds else 0.0
        return (
            f"{self.seeds} schedules, {self.virtual_s / 3600:.1f} virtual hours in {self.seconds:.1f} s "
            f"({rate:.0f}/s), a leader {self.led_s / max(1.0, self.virtual_s):.0%} of the time, {self.terms} terms, "
            f"{self.writes} writes accepted, {self.refusals} refused"
        )


def sweep(seeds: range, fault: str | None = None, processes: int = 1) -> Sweep:
    """Run the schedules of these seeds; stop soon after the first one that breaks an invariant."""
    result = Sweep(fault)
    began_s = time.perf_counter()
    parts = [seeds[start : start + SEEDS_PER_TASK] for start in range(0, len(seeds), SEEDS_PER_TASK)]
    with _mapped(functools.partial(_run_part, fault), parts, processes) as outcomes:
        for part in outcomes:
            for outcome in part:
                result.add(outcome)
            if result.failed is not None:
                break
    result.seconds = time.perf_counter() - began_s
    return result


def _run_part(fault: str | None, seeds: range) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcomes.append(simulate(seed, fault))
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
    return f"python -m fencehold.testing.simulation --seeds {outcome.seed}{fault} --trace"


def report(outcome: Outcome, lines_max: int = TRACE_LINES_MAX) -> str:
    """Return why a schedule failed, the end of its trace, and how to repeat it."""
    lines = outcome.trace or simulate(outcome.seed, outcome.fault, trace=True).trace
    cut = [f"... {len(lines) - lines_max} lines before"] if len(lines) > lines_max else []
    return "\n".join(
        [f"seed {outcome.seed}: {outcome.violation}", *cut, *lines[-lines_max:], f"replay: {replay_command(outcome)}"]
    )


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fencehold.testing.simulation")
    parser.add_argument("--seeds", type=_seeds, default=range(10_000), help="FIRST:END, or one seed (default 0:10000)")
    parser.add_argument("--fault", choices=FAULTS, help="plant this fault")
    parser.add_argument("--trace", action="store_true", help="print what happens, seed by seed")
    parser.add_argument("--processes", type=int, default=min(2, multiprocessing.cpu_count()))
    given = parser.parse_args(arguments)
    if given.trace:
        return _print_traces(given.seeds, given.fault)
    result = sweep(given.seeds, given.fault, given.processes)
    print(result)  # noqa: T201
    if result.failed is None:
        return 0
    print(report(result.failed))  # noqa: T201
    return 1


def _print_traces(seeds: range, fault: str | None) -> int:
    for seed in seeds:
        outcome = simulate(seed, fault, trace=True)
        print(*outcome.trace, f"seed {seed}: {outcome.violation or 'clean'}", sep="\n")  # noqa: T201
        if outcome.violation is not None:
            return 1
    return 0
