"""A candidate as a process: python -m bench.leases.candidate URL NAME [LEASE] [COUNT].

Words: `follow` (seek the lease), `release` (a clean release). With COUNT it seeks NAME-0, NAME-1, ... with one leader
each. Tells: ready, following (a first attempt of each was refused), leading (a valid term of each), released.
"""

from __future__ import annotations

import asyncio
import sys

import fencehold
from bench.telling import now_s, tell, words


class Candidate:
    def __init__(self, store: fencehold.Store, name: str, lease: str) -> None:
        self._store = store
        self._name = name
        self._lease = lease
        self._leader: fencehold.Leader | None = None
        self._terms: asyncio.Task[None] | None = None
        self.refused = asyncio.Event()
        self.leads = asyncio.Event()
        self.leads_since_s = 0.0

    async def follow(self) -> None:
        self.refused.clear()
        self.leads.clear()
        self._leader = self._store.leader(self._name, lease=self._lease)
        self._leader.on_acquire_failed(self.refused.set)
        await self._leader.start()
        self._terms = asyncio.create_task(self._lead(self._leader))

    async def _lead(self, leader: fencehold.Leader) -> None:
        async for term in leader.terms():
            valid, at_s = term.is_valid, now_s()
            if valid:
                self.leads_since_s = at_s
                self.leads.set()

    async def release(self) -> tuple[float, float]:
        assert self._leader is not None, "release comes after follow"
        called_s = now_s()
        await self._leader.shutdown()
        return called_s, now_s()


async def run(url: str, names: list[str], lease: str) -> None:
    async with fencehold.connect(url) as store:
        candidates = [Candidate(store, name, lease) for name in names]
        tell("ready")
        watching: set[asyncio.Task[None]] = set()
        async for word in words():
            if word == "follow":
                await asyncio.gather(*(c.follow() for c in candidates))
                watching = {asyncio.create_task(told_refused(candidates)), asyncio.create_task(told_leads(candidates))}
            elif word == "release":
                spans = [await c.release() for c in candidates]
                tell("released", called_s=spans[0][0], done_s=spans[-1][1])
        for task in watching:
            task.cancel()


async def told_refused(candidates: list[Candidate]) -> None:
    for candidate in candidates:
        await candidate.refused.wait()
    tell("following")


async def told_leads(candidates: list[Candidate]) -> None:
    for candidate in candidates:
        await candidate.leads.wait()
    tell("leading", at_s=max(c.leads_since_s for c in candidates))


def main() -> None:
    url, name, lease, count = (*sys.argv[1:], *("30s", "")[len(sys.argv) - 3 :])
    names = [f"{name}-{index}" for index in range(int(count))] if count else [name]
    asyncio.run(run(url, names, lease))


if __name__ == "__main__":
    main()
