"""Named leases on PostgreSQL: the promises, in the order of the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import fencehold
from bench.leases import handover, idle, many, rates, takeover
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

PARTS: dict[str, Callable[[Bench, Sizes, Tell], list[Finding]]] = {
    "handover": handover.measure,
    "takeover": takeover.measure,
    "idle": idle.measure,
    "rates": rates.measure,
    "many": many.measure,
}


def measure(bench: Bench, sizes: Sizes, tell: Tell, parts: list[str]) -> Iterator[Finding]:
    if parts:
        asyncio.run(_prepare(bench.dsn))
    for name in parts:
        tell(f"{name} ...")
        yield from PARTS[name](bench, sizes, tell)


async def _prepare(dsn: str) -> None:
    async with fencehold.connect(dsn) as store:
        await store.init()
