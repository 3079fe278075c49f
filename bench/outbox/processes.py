"""Two worker processes on one outbox against one, and whether any event was handled twice."""

from __future__ import annotations

import os
import statistics

from bench.outbox.drains import Drain, drain_copy
from bench.outbox.ground import Ground
from bench.outbox.systems import OURS
from bench.report import Finding

RATIO_MIN = 1.5
FREE_CORES_MIN = 1.0
# Ten handlers that wait this long leave the processor idle most of the time, however few cores there are.
WAITING = {"BENCH_HANDLER_MS": "10"}
WAITING_PER_S = 900


def measure(ground: Ground) -> list[Finding]:
    busy, waiting = OURS.events("c10", ground.sizes.drain_s), round(WAITING_PER_S * ground.sizes.drain_s)
    drains: dict[str, list[Drain]] = {}
    for index in range(ground.sizes.rounds):
        for count in (1, 2) if index % 2 else (2, 1):
            ground.tell(f"two processes, round {index + 1} of {ground.sizes.rounds}: {count}")
            for name, events, environment in (("no-op", busy, {}), ("waiting", waiting, WAITING)):
                source = ground.databases.loaded(OURS, events)
                done = drain_copy(ground.databases, OURS, source, events, "c10", count, **environment)
                drains.setdefault(f"{name} {count}", []).append(done)
    twice = sum(drain.hits - drain.events for rounds in drains.values() for drain in rounds)
    return [
        scaling("handlers that wait 10 ms", drains["waiting 1"], drains["waiting 2"]),
        scaling("handlers that do nothing", drains["no-op 1"], drains["no-op 2"]),
        Finding("two processes: events handled twice", twice, "", 0),
    ]


def scaling(what: str, one: list[Drain], two: list[Drain]) -> Finding:
    """A verdict only if one process left a core free: a second has to run somewhere."""
    ratios = [b.per_s / a.per_s for a, b in zip(one, two, strict=True)]
    free_cores = (os.cpu_count() or 1) - statistics.median(drain.busy_cores for drain in one)
    name = f"two processes against one, {what} ({max(0.0, free_cores):.1f} cores free beside one)"
    limit = RATIO_MIN if free_cores >= FREE_CORES_MIN else None
    detail = {"rounds": ratios, "one_per_s": [d.per_s for d in one], "two_per_s": [d.per_s for d in two]}
    return Finding(name, statistics.median(ratios), "x", limit, at_least=True, detail=detail)
