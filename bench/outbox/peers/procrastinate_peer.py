"""procrastinate: psycopg, asyncio. Finished jobs stay in the table, as ours do."""

# mypy: ignore-errors

import asyncio
import sys
import time

import procrastinate
import psycopg
from hits import BATCH, DSN, LatencyProbe, batches, hit, out, serve

UNFINISHED = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
CONCURRENCY = {"c10": 10, "best": int(BATCH or "20"), "lat": 10}
CONNECTIONS = {"c10": 12, "best": min(CONCURRENCY["best"] + 4, 40)}
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=DSN, min_size=2, max_size=CONNECTIONS.get(sys.argv[2] if len(sys.argv) > 2 else "", 6)
    )
)


@app.task(name="noop", queue="bench")
async def noop(i):
    hit()


async def setup():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(count):
    async with app.open_async():
        began_s = time.perf_counter()
        for batch in batches(count):
            await noop.batch_defer_async(*[{"i": i} for i in batch])
        out({"secs": time.perf_counter() - began_s})


async def worker(mode):
    async with app.open_async():
        await app.run_worker_async(queues=["bench"], concurrency=CONCURRENCY[mode], wait=True, delete_jobs="never")


async def latency(count, path):
    async with app.open_async():
        await LatencyProbe(path, count).run_async(lambda i: noop.defer_async(i=i))


async def fill(count):
    async with await psycopg.AsyncConnection.connect(DSN, autocommit=True) as connection:
        await connection.execute("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER")
        await connection.execute(
            """INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)
               SELECT 'bench', 'noop', jsonb_build_object('i', g), 'succeeded', 1 FROM generate_series(1, %s) g""",
            (count,),
        )
        await connection.execute("ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER")
        # Each finished job leaves three event rows behind.
        await connection.execute(
            """INSERT INTO procrastinate_events (job_id, type) SELECT j.id, t.t::procrastinate_job_event_type
                 FROM procrastinate_jobs j, (VALUES ('deferred'), ('started'), ('succeeded')) t(t)"""
        )
        for table in ("procrastinate_jobs", "procrastinate_events"):
            await connection.execute(f"VACUUM ANALYZE {table}")


if __name__ == "__main__":
    verbs = (setup, enqueue, worker, latency, fill)
    serve({verb.__name__: lambda *words, verb=verb: asyncio.run(verb(*words)) for verb in verbs}, UNFINISHED)
