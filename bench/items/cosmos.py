"""What a leased item costs on Cosmos DB, in requests and request units: by etag, and by stored procedure.

Requests are counted by the library itself, as it tells them. The stand-ins charge what they please: units are printed
so that a run against an account of one's own (`BENCH_COSMOS_URL=cosmos://...`) can be read the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import fencehold
from bench.items.ground import BATCH, KIND
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes
from tests.fencehold.backends.cosmos.items.procedures.bridge import Bridge
from tests.fencehold.backends.cosmos.items.procedures.http_front import http_front
from tests.servers.cosmos import CosmosServer

BATCHES = 5
REQUESTS_MAX = {"etag": 22, "procedures": 1}
STAND_IN = "etag: a stand-in's; procedures: made up by the bridge"


class Requests:
    """Counts what the library tells of its requests for one verb."""

    def __init__(self) -> None:
        self.count, self.units = 0, 0.0

    def fact(self, event: str, **fields: Any) -> None:
        if event == "request_charged" and fields["verb"] == "next_for_state":
            self.count += 1
            self.units += fields["request_units"]


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    return asyncio.run(_measure(tell))


async def _measure(tell: Tell) -> list[Finding]:
    found = []
    for way, limit in REQUESTS_MAX.items():
        tell(f"Cosmos DB by {way}: {BATCHES} batches of {BATCH}")
        async with address(way) as url:
            worst, requests = await leased(url)
        items = BATCHES * BATCH
        found += [
            Finding(f"Cosmos DB by {way}: requests for a batch of {BATCH}, most", worst, "", limit),
            Finding("  requests per leased item", requests.count / items),
            Finding("  request units per leased item", requests.units / items, detail={"charged by": STAND_IN}),
        ]
    return found


@contextlib.asynccontextmanager
async def address(way: str) -> AsyncIterator[str]:
    if given := os.environ.get("BENCH_COSMOS_URL"):
        yield f"{given}{'&' if '?' in given else '?'}items={way}"
    elif way == "etag":
        server = CosmosServer()
        try:
            await asyncio.to_thread(server.start)
            yield server.url()
        finally:
            server.close()
    else:
        bridge = Bridge()
        try:
            async with http_front(bridge, uuid.uuid4().hex) as (host, _):
                yield f"cosmos://:a2V5@{host}/bench?tls=off&items=procedures"
        finally:
            bridge.close()


async def leased(url: str) -> tuple[int, Requests]:
    """The most requests that one batch took, and all of them."""
    requests, worst = Requests(), 0
    async with fencehold.connect(url, facts=requests) as store:
        items = store.items(f"{KIND}-{uuid.uuid4().hex[:8]}")
        await store.init()
        for n in range(BATCHES * BATCH):
            await items.put(f"item-{n}", state="NEW", document={"n": n})
        for _ in range(BATCHES):
            before = requests.count
            taken = await items.next_for_state("NEW", BATCH)
            if len(taken) != BATCH:
                raise RuntimeError(f"{len(taken)} of {BATCH} items were leased")
            worst = max(worst, requests.count - before)
    return worst, requests
