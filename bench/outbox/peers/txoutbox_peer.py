"""txoutbox: asyncpg, uvloop; no keys, so strict ordering is off."""

# mypy: ignore-errors

import time

import asyncpg
import uvloop
from hits import BATCH, DSN, LatencyProbe, batches, hit, out, serve
from txoutbox import Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

UNFINISHED = "SELECT count(*) FROM outbox WHERE status = 'pending'"


def storage(pool):
    return PostgresStorage(pool, strict_ordering=False, notify_channel="outbox")


async def setup():
    async with asyncpg.create_pool(DSN, min_size=1, max_size=2) as pool:
        await storage(pool).create_schema()


async def enqueue(count):
    async with asyncpg.create_pool(DSN, min_size=1, max_size=2) as pool:
        into = storage(pool)
        async with pool.acquire() as connection:
            began_s = time.perf_counter()
            for batch in batches(count):
                async with connection.transaction():  # there is no way to add many: one insert() per row
                    for i in batch:
                        await into.insert(connection, "bench", {"i": i})
            out({"secs": time.perf_counter() - began_s})


async def worker(mode):
    size = int(BATCH or "1000") if mode == "best" else 10
    pool = await asyncpg.create_pool(DSN, min_size=2, max_size=10)
    source = storage(pool)

    async def publish(message):
        hit()

    relay = Relay(source, publish, config=RelayConfig(batch_size=size, concurrency=size))
    await source.listen(relay.wake)
    await relay.run(handle_signals=True)


async def latency(count, path):
    async with asyncpg.create_pool(DSN, min_size=1, max_size=2) as pool:
        into = storage(pool)
        await LatencyProbe(path, count).run_async(lambda i: into.add("bench", {"i": i}))


async def fill(count):
    connection = await asyncpg.connect(DSN)
    await connection.execute("ALTER TABLE outbox DISABLE TRIGGER USER")
    await connection.execute(
        """INSERT INTO outbox (topic, payload, status, attempts)
           SELECT 'bench', convert_to('{"i": ' || g || '}', 'UTF8'), 'done', 1 FROM generate_series(1, $1::int) g""",
        count,
    )
    await connection.execute("ALTER TABLE outbox ENABLE TRIGGER USER")
    await connection.execute("VACUUM ANALYZE outbox")
    await connection.close()


if __name__ == "__main__":
    verbs = (setup, enqueue, worker, latency, fill)
    serve({verb.__name__: lambda *words, verb=verb: uvloop.run(verb(*words)) for verb in verbs}, UNFINISHED)
