"""A worker whose `run` is cancelled, and then again while it stops: nothing that ran beside it runs on."""

import asyncio
import contextlib
import time

from fencehold.ports.events import Claim
from tests.fencehold.runtime.outbox.conftest import Opened

LIMIT_S = 5.0


async def handle(event: Claim) -> None:
    await asyncio.sleep(0)


async def test_a_worker_that_is_cancelled_at_every_turn_still_stops_what_runs_beside_it(opened: Opened) -> None:
    async with opened("memory://") as (outbox, heard):
        worker = outbox.worker(handle)
        run = asyncio.create_task(worker.run())
        await heard.once("leader_acquired")  # its reaper's
        await heard.once("worker_started")
        outbox._access.context.store.keeper_loop.post(time.sleep, 0.2)  # nothing can be stopped before that
        while not run.done():
            run.cancel()
            await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError):
            await run
        async with asyncio.timeout(LIMIT_S):
            await worker.stopped.wait()
            await heard.once("leader_released")
        assert heard.all("worker_stopped")
