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


async def run(url: str, count: int) -> None:
    renewals = Renewals()
    async with fencehold.connect(url, facts=renewals) as store:
        leaders = [store.leader(f"many-{index}") for index in range(count)]
        tell("ready")
        async for word in words():
            if word == "lead":
                start_s = time.monotonic()
                await asyncio.gather(*(leader.start() for leader in leaders))
                await asyncio.gather(*(leader.wait_for_leadership() for leader in leaders))
                tell("leading", took_s=time.monotonic() - start_s)
            elif word == "count":
                renewals.at_s.clear()
            elif word == "tell":
                tell("renewed", bursts=renewals.bursts())


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
