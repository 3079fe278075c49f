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
    to_bare = [a.per_s / b.per_s for a, b in zip(drains[OURS.name], drains[BARE.name], strict=True)]
    name = f"{MODES[mode]}: rate against the bare loop"
    limit = TO_BARE_MIN[mode]
    found = against_peers(ground, drains, mode)
    found.append(Finding(name, statistics.median(to_bare), "x", limit, at_least=True, detail={"rounds": to_bare}))
    found += [Finding(f"  {system.label}", median_of(drains[system.name], per_s), "/s") for system in systems]
    return found + written(drains, mode)


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
    ratios = [a.per_s / b.per_s for a, b in zip(drains[OURS.name], drains[fastest.name], strict=True)]
    name = f"{MODES[mode]}: rate against the fastest peer ({fastest.label})"
    limit = TO_PEER_MIN[mode]
    return [Finding(name, statistics.median(ratios), "x", limit, at_least=True, detail={"rounds": ratios})]


def written(drains: Drains, mode: str) -> list[Finding]:
    def wal(name: str) -> float:
        return median_of(drains[name], lambda d: d.wal_bytes_per_event)

    def commits(name: str) -> float:
        return median_of(drains[name], lambda d: d.commits_per_event)

    others = {name: (wal(name), commits(name)) for name in drains}
    return [
        Finding(f"{MODES[mode]}: WAL per event", wal(OURS.name), "bytes", WAL_BYTES_MAX, detail=others),
        *(Finding(f"  {name}: WAL per event", wal(name), "bytes") for name in drains if name != OURS.name),
        *(Finding(f"  {name}: commits per event", commits(name)) for name in drains),
    ]


def per_s(drain: Drain) -> float:
    return drain.per_s


def median_of(drains: Sequence[Drain], value: Callable[[Drain], float]) -> float:
    return statistics.median(map(value, drains))
