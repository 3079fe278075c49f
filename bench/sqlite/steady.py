"""A steady load on a SQLite file, in a process of its own.

python -m bench.sqlite.steady bare PATH PER_S              three transactions of three statements each, on one thread
python -m bench.sqlite.steady intents URL PER_S TARGET     one request each to the service
python -m bench.sqlite.steady events PATH PER_S            one `outbox.add` each
python -m bench.sqlite.steady worker PATH                  a worker with ten handlers that take 5 ms

Tells: ready; it works until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

import httpx

import fencehold
from bench.telling import tell, words

HANDLER_S = 0.005


async def bare(path: str, per_s: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    number, rows = 0, connection.execute("SELECT count(*) FROM bare").fetchone()[0]

    def one() -> None:
        nonlocal number
        for _ in range(3):
            number = (number + 1) % rows
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SELECT a FROM bare WHERE id = 1").fetchall()
            connection.execute("SELECT a FROM bare WHERE id = ?", [number]).fetchall()
            connection.execute("UPDATE bare SET a = a + 1 WHERE id = ?", [number])
            connection.execute("COMMIT")

    async def run() -> None:
        one()

    await at_a_pace(float(per_s), run)


async def intents(url: str, per_s: str, target: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def one() -> None:
            payload = {"referenceId": "bench", "to": "+4930123456", "message": "Your parcel comes today."}
            body = {"intentId": uuid.uuid4().hex, "submissionTarget": target, "payload": payload}
            (await client.post("/v1/intents", json=body)).raise_for_status()

        await at_a_pace(float(per_s), one)


async def events(path: str, per_s: str) -> None:
    async with fencehold.connect(f"sqlite:///{path}") as store:
        outbox = store.outbox()

        async def one() -> None:
            await outbox.add("order.created", {"id": 7, "note": "x" * 200}, aggregate_id="7")

        await at_a_pace(float(per_s), one)


async def worker(path: str) -> None:
    async def handle(_: fencehold.Event) -> None:
        await asyncio.sleep(HANDLER_S)

    async with fencehold.connect(f"sqlite:///{path}") as store:
        running = asyncio.create_task(store.outbox().worker(handle, concurrency=10).run())
        tell("ready")
        await running


async def at_a_pace(per_s: float, one: Callable[[], Awaitable[None]]) -> None:
    """Each at its own time, whatever became of the one before it."""
    tell("ready")
    began_s, under_way = time.perf_counter(), set[asyncio.Task[None]]()
    for number in range(1_000_000):
        await asyncio.sleep(max(0.0, began_s + number / per_s - time.perf_counter()))
        task = asyncio.ensure_future(one())
        under_way.add(task)
        task.add_done_callback(under_way.discard)


async def main(kind: str, *words_given: str) -> None:
    work = {"bare": bare, "intents": intents, "events": events, "worker": worker}[kind]
    task = asyncio.create_task(work(*words_given))
    async for _ in words():
        pass
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
