"""pgleaderlock: how soon does another process lead after a clean step-down?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.locks import handover
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

PARTS: dict[str, Callable[[Bench, Sizes, Tell], list[Finding]]] = {"lock-handover": handover.measure}


def measure(bench: Bench, sizes: Sizes, tell: Tell, parts: list[str]) -> Iterator[Finding]:
    for name in parts:
        tell(f"{name} ...")
        yield from PARTS[name](bench, sizes, tell)
