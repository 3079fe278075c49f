"""Eight claimers, each with a connection of its own, as tasks of one process.

python -m bench.items.claimers URL WHO STATES

One process, because its one core of Python and the server's other are all there is on the smallest machine it is
measured on; the library and the bare loop run in the same way. WHO is `ours` (store.items) or `bare`: psycopg with one
statement of the kind people write, on the same table.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg

import fencehold
from bench.items.ground import BATCH, BATCHES_PER_STATE, CLAIMERS, KIND
from bench.telling import tell, words

LEASE_MS = 60_000
BARE = """
UPDATE fencehold_items AS i
   SET token = nextval('fencehold_items_token'), holder_id = %(holder)s, leased_at = clock_timestamp(),
       lease_ms = %(lease_ms)s, expires_at = clock_timestamp() + %(lease_ms)s * interval '1 millisecond'
  FROM (SELECT kind, id FROM fencehold_items
         WHERE kind = %(kind)s AND state = %(state)s AND (holder_id IS NULL OR expires_at <= statement_timestamp())
         ORDER BY state_timestamp, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS n
 WHERE i.kind = n.kind AND i.id = n.id
RETURNING i.id, i.document, i.state_timestamp, i.token, i.expires_at"""

Take = Callable[[str], Awaitable[list[str]]]


@contextlib.asynccontextmanager
async def ours(url: str, number: int) -> AsyncIterator[Take]:
    async with fencehold.connect(url) as store:
        items = store.items(KIND, lease="60s", holder_id=f"claimer-{number}")

        async def take(state: str) -> list[str]:
            return [item.id for item in await items.next_for_state(state, limit=BATCH)]

        yield take


@contextlib.asynccontextmanager
async def bare(url: str, number: int) -> AsyncIterator[Take]:
    async with await psycopg.AsyncConnection[Any].connect(url, autocommit=True) as connection:
        connection.prepare_threshold = 0
        cursor = connection.cursor(binary=True)
        fixed = {"kind": KIND, "holder": f"claimer-{number}", "limit": BATCH, "lease_ms": LEASE_MS}

        async def take(state: str) -> list[str]:
            await cursor.execute(BARE, {**fixed, "state": state})
            return [row[0] for row in await cursor.fetchall()]

        yield take


async def claim(take: Take, states: int) -> list[str]:
    taken: list[str] = []
    for state in range(states):
        for _ in range(BATCHES_PER_STATE):
            taken += await take(f"STATE-{state}")
    return taken


async def main() -> None:
    url, who, states = sys.argv[1:]
    async with contextlib.AsyncExitStack() as stack:
        opened = {"ours": ours, "bare": bare}[who]
        takes = [await stack.enter_async_context(opened(url, number)) for number in range(CLAIMERS)]
        for take in takes:
            assert await take("NONE") == [], "connected, and the statement prepared"
        tell("ready")
        async for _ in words():
            began_s = time.perf_counter()
            taken = await asyncio.gather(*(claim(take, int(states)) for take in takes))
            took_s = time.perf_counter() - began_s
            ids = [item_id for some in taken for item_id in some]
            tell("claimed", took_s=took_s, items=len(ids), different=len(set(ids)))


if __name__ == "__main__":
    asyncio.run(main())
