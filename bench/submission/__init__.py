"""SubmissionManager on PostgreSQL: the promises, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes
from bench.submission import failover, intake, pickup, rebuild
from bench.submission.ground import Ground, prepared

PARTS: dict[str, Callable[[Ground], list[Finding]]] = {
    "intake": intake.measure,
    "rebuild": rebuild.measure,
    "pickup": pickup.measure,
    "failover": failover.measure,
}


def measure(bench: Bench, sizes: Sizes, tell: Tell, parts: list[str]) -> Iterator[Finding]:
    for name in parts:
        tell(f"{name} ...")
        with prepared(bench, sizes.submission, tell) as ground:
            yield from PARTS[name](ground)
