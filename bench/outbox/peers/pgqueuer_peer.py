"""pgqueuer: asyncpg pool driver, uvloop."""

# mypy: ignore-errors

import asyncio
import signal
import time

import asyncpg
import uvloop
from hits import BATCH, DSN, LatencyProbe, batches, hit, out, serve
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

# Finished jobs are deleted from the queue's table.
UNFINISHED = "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')"


async def setup():
    connection = await asyncpg.connect(DSN)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def enqueue(count):
    async with asyncpg.create_pool(DSN, min_size=1, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        began_s = time.perf_counter()
        for batch in batches(count):
            await queries.enqueue(["noop"] * len(batch), [b"%d" % i for i in batch], [0] * len(batch))
        out({"secs": time.perf_counter() - began_s})


async def worker(mode):
    # c10: a hard cap of ten in flight; the library wants max_concurrent_tasks >= 2 * batch_size.
    batch, cap = {"c10": (5, 10), "best": (int(BATCH or "2000"), None), "lat": (10, None)}[mode]
    pool = await asyncpg.create_pool(DSN, min_size=2, max_size=10)
    pgq = PgQueuer.from_asyncpg_pool(pool)

    @pgq.entrypoint("noop")
    async def noop(job):
        hit()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, pgq.shutdown.set)
    await pgq.run(batch_size=batch, max_concurrent_tasks=cap)


async def latency(count, path):
    async with asyncpg.create_pool(DSN, min_size=1, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await LatencyProbe(path, count).run_async(lambda i: queries.enqueue("noop", b"%d" % i, 0))


async def fill(count):
    connection = await asyncpg.connect(DSN)
    # A finished job leaves three log rows, already aggregated.
    await connection.execute(
        """INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, aggregated)
           SELECT g, s.s::pgqueuer_status, 0, 'noop', true
             FROM generate_series(1, $1::int) g, (VALUES ('queued'), ('picked'), ('successful')) s(s)""",
        count,
    )
    await connection.execute("SELECT setval(pg_get_serial_sequence('pgqueuer', 'id'), $1::bigint)", count + 1)
    await connection.execute("VACUUM ANALYZE pgqueuer_log")
    await connection.close()


if __name__ == "__main__":
    verbs = (setup, enqueue, worker, latency, fill)
    serve({verb.__name__: lambda *words, verb=verb: uvloop.run(verb(*words)) for verb in verbs}, UNFINISHED)
