"""Items on PostgreSQL and Cosmos DB: the promises, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.items import claims, cosmos, finished, renewals
from bench.items.ground import prepare
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

PARTS: dict[str, Callable[[Bench, Sizes, Tell], list[Finding]]] = {
    "item-claims": claims.measure,
    "item-renewals": renewals.measure,
    "item-history": finished.measure,
    "item-cosmos": cosmos.measure,
}


def measure(bench: Bench, sizes: Sizes, tell: Tell, parts: list[str]) -> Iterator[Finding]:
    if parts:
        prepare(bench.dsn)
    for name in parts:
        tell(f"{name} ...")
        yield from PARTS[name](bench, sizes, tell)
