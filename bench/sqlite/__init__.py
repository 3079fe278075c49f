"""SQLite has one write lock: how much of the time the service and the outbox hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes, SqliteSizes
from bench.sqlite import lock_share

PARTS: dict[str, Callable[[SqliteSizes, Tell], list[Finding]]] = {
    "lock-service": lock_share.of_service,
    "lock-outbox": lock_share.of_outbox,
}


def measure(bench: Bench, sizes: Sizes, tell: Tell, parts: list[str]) -> Iterator[Finding]:
    for name in parts:
        tell(f"{name} ...")
        yield from PARTS[name](sizes.sqlite, tell)
