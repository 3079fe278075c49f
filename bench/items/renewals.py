"""A thousand leases of one process: statements that renew them all, as the server counts."""

from __future__ import annotations

import asyncio
import time

import fencehold
from bench.items.ground import KIND, STATE_ITEMS, load
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

ITEMS = 1000
STATEMENTS_MAX = 3
ROUNDS = 5
WHO = "items-renewals"


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    load(bench.dsn, -(-ITEMS // STATE_ITEMS))
    return asyncio.run(_measure(bench, tell))


async def _measure(bench: Bench, tell: Tell) -> list[Finding]:
    async with fencehold.connect(bench.dsn_of(WHO, logged=True)) as store:
        items = store.items(KIND, lease="10m")
        held: list[fencehold.Item] = []
        while len(held) < ITEMS:
            held += await items.next_for_state(f"STATE-{len(held) // STATE_ITEMS}", ITEMS - len(held))
        tell(f"item-renewals: {ITEMS} items are held")
        mark, took_ms = bench.mark(), list[float]()
        for _ in range(ROUNDS):
            began_s = time.perf_counter()
            assert len(await items.renew(held)) == ITEMS
            took_ms.append(1000 * (time.perf_counter() - began_s))
        sent = [one for one in bench.statements(mark) if one.who == WHO] if bench.counts_statements else []
    found = [Finding("  and take", min(took_ms), "ms", detail={"rounds_ms": took_ms})]
    if sent:
        name = f"{ITEMS} renewals: statements"
        found.insert(0, Finding(name, len(sent) / ROUNDS, "", STATEMENTS_MAX))
    return found
