"""fencehold's own outbox, with the verbs of peers/hits.py.

BENCH_LOOP=uvloop runs it on another loop, BENCH_HANDLER_MS gives the handler something to wait for, BENCH_LISTS=1 has
mode `best` hand the handler whole lists, BENCH_NO_REAPER=1 leaves the reaper to another worker. Verbs of its own:
`load N EACH_S` adds N events every EACH_S seconds until SIGTERM, `copy N` adds N events by COPY.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import psycopg

import fencehold
from bench.outbox.peers.hits import BATCH, DSN, LatencyProbe, batches, hit, out, serve
from fencehold.model.outbox.new_events import new_tracking_id

TABLE = "outbox"
EVENT_TYPE = "bench"
POLL_EVERY_S = 1
# Each half has an index of its own: a look at a large table must not take part of the time that is measured.
UNFINISHED = f"""SELECT (SELECT count(*) FROM {TABLE} WHERE status IN ('PENDING', 'FAILED'))
                      + (SELECT count(*) FROM {TABLE} WHERE status = 'PROCESSING')"""
HANDLER_S = float(os.environ.get("BENCH_HANDLER_MS", "0")) / 1000


async def setup() -> None:
    async with fencehold.connect(DSN) as store:
        store.outbox(TABLE)
        await store.init()


async def enqueue(count: int) -> None:
    async with fencehold.connect(DSN) as store:
        outbox = store.outbox(TABLE)
        await outbox.stats()  # the connection is made before the clock starts, as in every other script
        began_s = time.perf_counter()
        for batch in batches(count):
            await outbox.add_many([(EVENT_TYPE, {"i": i}) for i in batch])
        out({"secs": time.perf_counter() - began_s})


async def worker(mode: str) -> None:
    async with fencehold.connect(DSN) as store:
        outbox = store.outbox(TABLE, lease="30s")
        many = int(BATCH or "1000")
        if mode == "best" and os.environ.get("BENCH_LISTS"):
            running = outbox.worker(handle_list, concurrency=many, batch_size=many, poll_every=POLL_EVERY_S)
        else:
            concurrency, reaper = many if mode == "best" else 10, "BENCH_NO_REAPER" not in os.environ
            running = outbox.worker(handler(), concurrency=concurrency, poll_every=POLL_EVERY_S, reaper=reaper)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.stop)
        await running.run()


def handler() -> Callable[[Any], Awaitable[None]]:
    async def handle(event: Any) -> None:
        hit()

    async def handle_slowly(event: Any) -> None:
        hit()
        await asyncio.sleep(HANDLER_S)

    return handle_slowly if HANDLER_S else handle


async def handle_list(events: list[Any]) -> None:
    for _ in events:
        hit()


async def latency(count: int, path: str) -> None:
    async with fencehold.connect(DSN) as store:
        outbox = store.outbox(TABLE)
        await LatencyProbe(path, count).run_async(lambda i: outbox.add(EVENT_TYPE, {"i": i}))


async def load(count: int, each_s: str) -> None:
    """A steady load: late batches are made up for, so the rate is what was asked as long as the store can take it."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with fencehold.connect(DSN) as store:
        outbox = store.outbox(TABLE)
        due_s = time.monotonic()
        while not stopped.is_set():
            await outbox.add_many([(EVENT_TYPE, {"i": i}) for i in range(count)])
            due_s += float(each_s)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))


def fill(count: int) -> None:
    """With tracking ids in order of time, as ours are."""
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(
            f"""INSERT INTO {TABLE} (tracking_id, event_type, payload, status, lock_token, processed_at)
                SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - %(count)s + g), 12, '0') || '7'
                        || substr(md5(g::text), 1, 3) || '8' || substr(md5(g::text), 4, 15))::uuid,
                       '{EVENT_TYPE}', json_build_object('i', g), 'COMPLETED', 'bench/0123456789ab', clock_timestamp()
                  FROM generate_series(1, %(count)s) g""".encode(),
            {"count": count},
        )
        connection.execute(f"VACUUM ANALYZE {TABLE}".encode())


def copy(count: int) -> None:
    """What `add_many` could be at best: COPY of the same columns into the same table."""
    with psycopg.connect(DSN) as connection:
        began_s = time.perf_counter()
        for batch in batches(count):
            columns = f"COPY {TABLE} (tracking_id, event_type, payload, max_retries) FROM STDIN".encode()
            with connection.cursor() as cursor, cursor.copy(columns) as rows:
                for i in batch:
                    rows.write_row((new_tracking_id(), EVENT_TYPE, json.dumps({"i": i}), 5))
            connection.commit()
        out({"secs": time.perf_counter() - began_s})


def run(verb: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def on_loop(*words: Any) -> None:
        module = os.environ.get("BENCH_LOOP")  # not imported by name: it is no dependency, not even of the tests
        with asyncio.Runner(loop_factory=importlib.import_module(module).new_event_loop if module else None) as runner:
            runner.run(verb(*words))

    return on_loop


if __name__ == "__main__":
    asynchronous = {verb.__name__: run(verb) for verb in (setup, enqueue, worker, latency, load)}
    serve({**asynchronous, "fill": fill, "copy": copy}, UNFINISHED)
