"""faststream-outbox: SQLAlchemy over asyncpg, uvloop. Finished rows are deleted."""

# mypy: ignore-errors

import time
import warnings

import uvloop
from faststream import FastStream
from faststream_outbox import OutboxBroker, make_outbox_table
from hits import BATCH, DSN, LatencyProbe, batches, hit, out, serve
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

warnings.simplefilter("ignore")
UNFINISHED = "SELECT count(*) FROM outbox"
FETCHERS_BEST = 4

tables = MetaData()
outbox = make_outbox_table(tables, table_name="outbox")
engine = create_async_engine((DSN or "postgresql://").replace("postgresql://", "postgresql+asyncpg://"), pool_size=20)
broker = OutboxBroker(engine, outbox_table=outbox, logger=None)


async def setup():
    async with engine.begin() as connection:
        await connection.run_sync(tables.create_all)


async def enqueue(count):
    async with engine.connect() as connection:
        await connection.commit()
        began_s = time.perf_counter()
        for batch in batches(count):
            async with connection.begin():
                await broker.publish_batch(*[{"i": i} for i in batch], queue="bench", session=connection)
        out({"secs": time.perf_counter() - began_s})


async def worker(mode):
    size = int(BATCH or "500")
    ten = {"max_workers": 10, "fetch_batch_size": 10}
    best = {"max_workers": FETCHERS_BEST, "fetch_batch_size": size, "terminal_flush_batch_size": size}

    @broker.subscriber("bench", min_fetch_interval=0.02, max_fetch_interval=1.0, **(best if mode == "best" else ten))
    async def noop(body: dict) -> None:
        hit()

    await FastStream(broker, logger=None).run()


async def latency(count, path):
    async with engine.connect() as connection:
        await connection.commit()

        async def add(i):
            async with connection.begin():
                await broker.publish({"i": i}, queue="bench", session=connection)

        await LatencyProbe(path, count).run_async(add)


async def fill(count):
    """Nothing stays of a finished job."""


if __name__ == "__main__":
    verbs = (setup, enqueue, worker, latency, fill)
    serve({verb.__name__: lambda *words, verb=verb: uvloop.run(verb(*words)) for verb in verbs}, UNFINISHED)
