"""`outbox.configure(lease=...)`: what a worker derives from the lease follows it, unless it was set by hand."""

import asyncio
import time

from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import Gate, becomes, running


async def test_after_configure_shutdown_timeout_and_max_processing_follow_the_lease(
    file_url: str, opened: Opened
) -> None:
    async with opened(file_url, lease="30s") as (outbox, heard):
        worker = outbox.worker(Gate(is_open=True))
        assert (worker.settings.shutdown_timeout_s, worker.settings.max_processing_s) == (30, 90)
        async with running(worker):
            await heard.once("worker_started")
            outbox.configure(lease=2)
            assert (worker.settings.shutdown_timeout_s, worker.settings.max_processing_s) == (2, 6)
            outbox.configure(lease="60s")
            assert (worker.settings.shutdown_timeout_s, worker.settings.max_processing_s) == (60, 180)


async def test_what_was_set_by_hand_stays_but_no_shutdown_takes_longer_than_a_lease(
    file_url: str, opened: Opened
) -> None:
    async with opened(file_url, lease="30s") as (outbox, _):
        worker = outbox.worker(Gate(), shutdown_timeout="10s", max_processing="80s")
        outbox.configure(lease="20s")
        assert (worker.settings.shutdown_timeout_s, worker.settings.max_processing_s) == (10, 80)
        outbox.configure(lease=2)
        assert (worker.settings.shutdown_timeout_s, worker.settings.max_processing_s) == (2, 80)
        outbox.configure(lease="30s")
        assert (worker.settings.shutdown_timeout_s, worker.settings.max_processing_s) == (10, 80)


async def test_a_handler_that_takes_three_of_the_new_leases_is_aborted(file_url: str, opened: Opened) -> None:
    async with opened(file_url, lease="30s", retry_base="20s") as (outbox, _):
        gate = Gate()
        event = await outbox.add("a", 1)
        async with running(outbox.worker(gate)):
            await gate.has(1)
            outbox.configure(lease="200ms")
            failed = await becomes(file_url, event, "FAILED", limit_s=10)
        assert "longer than max_processing (0.6 s)" in failed["last_error"]


async def test_a_stop_takes_no_longer_than_the_new_lease(file_url: str, opened: Opened) -> None:
    async with opened(file_url, lease="30s") as (outbox, _):
        gate = Gate()
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, max_processing="90s")
        run = asyncio.create_task(worker.run())
        await gate.has(1)
        outbox.configure(lease="500ms")
        began_s = time.monotonic()
        worker.stop()
        await run
        assert time.monotonic() - began_s < 10
        assert (await becomes(file_url, event, "PENDING"))["retry_count"] == 0
