"""The outbox on PostgreSQL beside its peers and a bare loop: the promises, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.outbox import adding, history, idle, memory, processes, rates, snapshot
from bench.outbox.ground import Ground, prepared
from bench.outbox.systems import ALL_PEERS, OURS
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

PARTS: dict[str, Callable[[Ground], list[Finding]]] = {
    "c10": rates.measure_ten,
    "best": rates.measure_best,
    "two": processes.measure,
    "add": adding.measure_many,
    "latency": adding.measure_latency,
    "history": history.measure,
    "snapshot": snapshot.measure,
    "outbox-idle": idle.measure,
    "memory": memory.measure,
}


def measure(bench: Bench, sizes: Sizes, tell: Tell, parts: list[str]) -> Iterator[Finding]:
    if not parts:
        return
    with prepared(bench, sizes.outbox, tell) as ground:
        for name in parts:
            tell(f"{name} ...")
            yield from PARTS[name](ground)


def notes() -> list[str]:
    """A rate says nothing about what it is a rate of: what each system guarantees, by experiment, with its defaults."""
    systems = (OURS, *ALL_PEERS)
    width = max(len(system.label) for system in systems)
    lines = [f"  {system.label:{width}}  {system.guarantees.line()}" for system in systems if system.guarantees]
    return ["What each guarantees:", *lines]
