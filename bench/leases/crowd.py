"""Many leases led by one process: python -m bench.leases.crowd URL COUNT.

Words: `lead`, `count` (forget the renewals so far), `tell`. Tells: ready, leading, renewed (bursts of renewals, each as
first and last instant in seconds since 1970 and their number).
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import fencehold
from bench.telling import tell, words

SPREAD_S = 12.0  # more than one renewal interval of a lease of 30 s
GAP_S = 0.2  # renewals closer than this belong to one burst


class Renewals:
    """A sink for facts that keeps when leases were renewed."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def fact(self, event: str, **fields: Any) -> None:
        if event == "leader_renewed":
            self.at_s.append(time.time())

    def bursts(self) -> list[tuple[float, float, int]]:
        found: list[tuple[float, float, int]] = []
        for at_s in self.at_s:
            if found and at_s - found[-1][1] < GAP_S:
                found[-1] = (found[-1][0], at_s, found[-1][2] + 1)
            else:
                found.append((at_s, at_s, 1))
        return found


async def lead(leaders: list[fencehold.Leader]) -> None:
    """Lead them all, begun one after the other: the worst case for batches, since no two fall due together."""
    begin_s = time.monotonic()
    for index, leader in enumerate(leaders):
        await asyncio.sleep(begin_s + SPREAD_S * index / len(leaders) - time.monotonic())
        await leader.start()
    await asyncio.gather(*(leader.wait_for_leadership() for leader in leaders))


async def run(url: str, count: int) -> None:
    renewals = Renewals()
    async with fencehold.connect(url, facts=renewals) as store:
        leaders = [store.leader(f"many-{index}") for index in range(count)]
        tell("ready")
        async for word in words():
            if word == "lead":
                await lead(leaders)
                tell("leading")
            elif word == "count":
                renewals.at_s.clear()
            elif word == "tell":
                tell("renewed", bursts=renewals.bursts())


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
