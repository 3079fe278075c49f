"""Drain rates: ten in flight and the best setting, ours beside the bare loop and the peers, interleaved."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from bench.outbox.drains import Drain, drain_copy
from bench.outbox.ground import Ground
from bench.outbox.systems import BARE, LISTS, OURS, System
from bench.report import Finding

WAL_BYTES_MAX = 600.0
MODES = {"c10": "ten in flight", "best": f"best setting ({OURS.best_batch} in flight)"}
TO_PEER_MIN = {"c10": 2.0, "best": 1.3}
TO_BARE_MIN = {"c10": 0.8, "best": 0.7}

Drains = dict[str, list[Drain]]


def measure_ten(ground: Ground) -> list[Finding]:
    return measure(ground, "c10")


def measure_best(ground: Ground) -> list[Finding]:
    return measure(ground, "best")


def measure(ground: Ground, mode: str) -> list[Finding]:
    ours = [OURS, *([ground.on_uvloop] if ground.on_uvloop else []), *([LISTS] if mode == "best" else [])]
    systems = [BARE, *ours, *ground.peers]
    drains = interleaved(ground, systems, mode)
    name = f"{MODES[mode]}: rate against the bare loop"
    limit = TO_BARE_MIN[mode]
    found = [*against_peers(ground, drains, mode), against(drains, BARE, name, limit)]
    return found + written(drains, mode) + beside(systems, drains, mode)


def interleaved(ground: Ground, systems: Sequence[System], mode: str) -> Drains:
    """Everyone in each round, close together in time; who comes first changes from round to round."""
    sizes = ground.sizes
    drains: Drains = {system.name: [] for system in systems}
    for index in range(sizes.rounds):
        first = index % len(systems)
        for system in (*systems[first:], *systems[:first]):
            ground.tell(f"{MODES[mode]}, round {index + 1} of {sizes.rounds}: {system.label}")
            events = system.events(mode, sizes.drain_s)
            source = ground.databases.loaded(system, events)
            drains[system.name].append(drain_copy(ground.databases, system, source, events, mode))
    return drains


def against_peers(ground: Ground, drains: Drains, mode: str) -> list[Finding]:
    if not ground.peers:
        return []
    fastest = max(ground.peers, key=lambda peer: median_of(drains[peer.name], per_s))
    name = f"{MODES[mode]}: rate against the fastest peer ({fastest.label})"
    return [against(drains, fastest, name, TO_PEER_MIN[mode])]


def against(drains: Drains, other: System, name: str, limit: float) -> Finding:
    """By the median of the rounds; `best_rounds` compares the best of each, which disturbances distort less."""
    ratios = [a.per_s / b.per_s for a, b in zip(drains[OURS.name], drains[other.name], strict=True)]
    best = max(map(per_s, drains[OURS.name])) / max(map(per_s, drains[other.name]))
    detail = {"rounds": ratios, "best_rounds": best}
    return Finding(name, statistics.median(ratios), "x", limit, at_least=True, detail=detail)


def written(drains: Drains, mode: str) -> list[Finding]:
    ours = drains[OURS.name]
    return [
        Finding(f"{MODES[mode]}: WAL per event", median_of(ours, wal_bytes), "bytes", WAL_BYTES_MAX),
        Finding(f"{MODES[mode]}: commits per event", median_of(ours, commits)),
    ]


def beside(systems: Sequence[System], drains: Drains, mode: str) -> list[Finding]:
    columns = {f"{mode} /s": per_s, f"{mode} WAL bytes": wal_bytes, f"{mode} commits": commits}
    return [
        Finding(f"{system.label}: {column}", median_of(drains[system.name], value), cell=(system.label, column))
        for column, value in columns.items()
        for system in systems
    ]


def per_s(drain: Drain) -> float:
    return drain.per_s


def wal_bytes(drain: Drain) -> float:
    return drain.wal_bytes_per_event


def commits(drain: Drain) -> float:
    return drain.commits_per_event


def median_of(drains: Sequence[Drain], value: Callable[[Drain], float]) -> float:
    return statistics.median(map(value, drains))
