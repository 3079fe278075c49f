"""chancy: psycopg, its asyncio executor."""

# mypy: ignore-errors

import asyncio
import logging
import time

import psycopg
from chancy import Chancy, Queue, Worker, job
from hits import BATCH, DSN, LatencyProbe, hit, out, serve

UNFINISHED = "SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')"
log = logging.getLogger("bench.chancy")
log.setLevel(logging.WARNING)


@job(queue="bench")
async def noop(*, i: int):
    hit()


def app(**settings):
    return Chancy(DSN, log=log, **settings)


def noop_job():
    import chancy_peer  # a worker imports the job by this path, not as __main__.noop

    return chancy_peer.noop.job


async def setup():
    async with app() as chancy:
        await chancy.migrate()


async def enqueue(count):
    async with app() as chancy:
        jobs = [noop_job().with_kwargs(i=i) for i in range(count)]
        began_s = time.perf_counter()
        async for _ in chancy.push_many(jobs, batch_size=1000):
            pass
        out({"secs": time.perf_counter() - began_s})


async def worker(mode):
    concurrency = int(BATCH or "1000") if mode == "best" else 10
    queue = Queue(
        "bench", concurrency=concurrency, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
    )
    async with app(min_connection_pool_size=2, max_connection_pool_size=10) as chancy:
        await chancy.declare(queue, upsert=True)
        async with Worker(chancy, shutdown_timeout=5) as running:
            if mode == "best":
                running.send_outgoing_interval = 0.1
            await running.wait_for_shutdown()


async def latency(count, path):
    async with app() as chancy:
        await LatencyProbe(path, count).run_async(lambda i: chancy.push(noop_job().with_kwargs(i=i)))


async def fill(count):
    async with await psycopg.AsyncConnection.connect(DSN, autocommit=True) as connection:
        await connection.execute(
            """INSERT INTO chancy_jobs (id, queue, func, kwargs, limits, meta, priority, max_attempts, attempts, state,
                                        created_at, started_at, completed_at, scheduled_at)
               SELECT gen_random_uuid(), 'bench', 'chancy_peer.noop', json_build_object('i', g), '[]', '{}', 0, 1, 1,
                      'succeeded', now(), now(), now(), now()
                 FROM generate_series(1, %s) g""",
            (count,),
        )
        await connection.execute("VACUUM ANALYZE chancy_jobs")


if __name__ == "__main__":
    verbs = (setup, enqueue, worker, latency, fill)
    serve({verb.__name__: lambda *words, verb=verb: asyncio.run(verb(*words)) for verb in verbs}, UNFINISHED)
