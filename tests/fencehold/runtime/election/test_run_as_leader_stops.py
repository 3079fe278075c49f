"""`store.run_as_leader` and what ends it: a stop, a close of the store, a cancel."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

import fencehold
from fencehold import FixedInterval, Term
from tests.fencehold.runtime.election.leader_job_parts import Told, for_ever, is_held


async def running_in(store: fencehold.Store, **options: Any) -> "asyncio.Future[Any]":
    """A job that has begun and never ends by itself."""
    begun = asyncio.Event()

    async def job(term: Term) -> None:
        begun.set()
        await for_ever()

    running = asyncio.ensure_future(store.run_as_leader("x", job, **options))
    await begun.wait()
    return running


async def test_a_stop_cancels_the_job_gives_the_lease_back_and_returns_none() -> None:
    async with fencehold.connect("memory://stop") as store:
        stop = asyncio.Event()
        running = await running_in(store, stop=stop)
        stop.set()
        assert await asyncio.wait_for(running, 10) is None
        assert not await is_held(store)


async def test_a_stop_before_the_start_runs_nothing() -> None:
    async with fencehold.connect("memory://stop-first") as store:
        stop = asyncio.Event()
        stop.set()
        assert await store.run_as_leader("x", AsyncMock(side_effect=AssertionError), stop=stop) is None


async def test_a_stop_ends_the_wait_for_a_lease_that_another_holds() -> None:
    async with fencehold.connect("memory://stop-follower") as store:
        held = await running_in(store, holder_id="another")
        stop = asyncio.Event()
        waiting = asyncio.ensure_future(store.run_as_leader("x", AsyncMock(), stop=stop))
        await asyncio.sleep(0.05)
        stop.set()
        assert await asyncio.wait_for(waiting, 10) is None
        assert not held.done()


@pytest.mark.parametrize("by", ["stop", "close"])
async def test_a_stop_or_a_close_ends_the_pause_after_a_failure(by: str) -> None:
    async with fencehold.connect("memory://stop-pause", facts=(told := Told())) as store:
        stop, job = asyncio.Event(), AsyncMock(side_effect=ValueError)
        running = asyncio.ensure_future(store.run_as_leader("x", job, stop=stop, backoff=FixedInterval(3600)))
        await told.once("leader_released")
        if by == "stop":
            stop.set()
        else:
            await store.close()
        assert await asyncio.wait_for(running, 10) is None
    job.assert_awaited_once()


async def test_closing_the_store_cancels_the_job_and_returns_none() -> None:
    async with fencehold.connect("memory://close") as store:
        running = await running_in(store)
    assert await asyncio.wait_for(running, 10) is None


async def test_a_cancel_passes_through_and_gives_the_lease_back() -> None:
    async with fencehold.connect("memory://cancel") as store:
        running = await running_in(store)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not await is_held(store)


async def test_a_stop_before_the_job_could_begin_is_no_failure() -> None:
    async with fencehold.connect("memory://before-job", facts=(told := Told())) as store:
        job, steps = AsyncMock(), store._leader_job("x", None, None)
        term = await steps.next_term()
        assert term is not None
        term.lost("for the test")
        steps.stop()
        assert await steps._under(term, job) is None
        assert await steps.next_term() is None
    job.assert_not_called()
    assert told.of("leader_job_failed") == []
