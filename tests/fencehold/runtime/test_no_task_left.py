"""However a store or a leader is given up, asyncio never has to say "Task was destroyed but it is pending"."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold.backends.memory.backend import MemoryBackend, Shelf
from fencehold.model.election.election import LockState
from fencehold.ports.fact_table import StoreFacts
from fencehold.runtime.context import KeeperServices
from fencehold.runtime.core import keeper_thread as host
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.core.keeper_thread import KeeperThread
from fencehold.telemetry.logs import LogSink


@pytest.fixture(autouse=True)
def nothing_said(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither while the test runs nor when what it left behind is collected."""
    with caplog.at_level(logging.ERROR, "asyncio"):
        yield
        gc.collect()
        assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.fixture
def shared_thread() -> Iterator[KeeperThread]:
    """The keeper's thread, kept alive: what is left behind on its loop stays there."""
    thread = host.enter()
    yield thread
    host.leave(thread)


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "fencehold-keeper"]


async def lead_and_stall(url: str, stalling: asyncio.Event) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        async with store.leader("x", lease="200ms", stall_limit="200ms") as leader:
            async for term in leader.terms():
                async with term:
                    stalling.set()
                    while term.is_valid:  # the event loop stands still, until the keeper has let the lease go
                        time.sleep(0.01)
                    await asyncio.Event().wait()


@pytest.mark.parametrize("database", ["sqlite_url", "postgres_url"])
async def test_cancelling_a_leader_stalled_past_its_stall_limit_leaves_no_task(
    database: str, request: pytest.FixtureRequest
) -> None:
    before, stalling = asyncio.all_tasks(), asyncio.Event()
    task = asyncio.ensure_future(lead_and_stall(request.getfixturevalue(database), stalling))
    await stalling.wait()
    (keeper,) = keepers()
    await cancel_often(task)  # as Ctrl-C, pressed again and again because nothing seems to happen
    with pytest.raises(asyncio.CancelledError):
        await task
    if leaving := asyncio.all_tasks() - before:
        await asyncio.wait(leaving, timeout=10)
    assert asyncio.all_tasks() == before
    await asyncio.to_thread(keeper.join, 10)
    assert not keeper.is_alive(), "the store was not closed"


async def cancel_often(task: asyncio.Future[Any]) -> None:
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


async def until_idle(thread: KeeperThread) -> None:
    """Wait until all tasks of the keeper's thread have ended."""
    while thread._tasks:
        await asyncio.to_thread(thread.submit(asyncio.sleep(0.01)).result)


@pytest.mark.fault("cancel", "leader", "any")
async def test_a_store_whose_closing_is_cancelled_stops_its_leaders_and_gives_their_leases_back(
    shared_thread: KeeperThread,
) -> None:
    store = fencehold.connect("memory://close-cancelled")
    await store.open()
    leaders = [store.leader(name) for name in ("a", "b")]
    for leader in leaders:
        await leader.start()
        assert await leader.wait_for_leadership(10)
    waiting = asyncio.ensure_future(store.leader("never started").wait_for_leadership())
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    await cancel_often(closing)
    await until_idle(shared_thread)
    assert await asyncio.wait_for(waiting, 10) is False
    assert [leader.state for leader in leaders] == [LockState.STOPPED, LockState.STOPPED]
    async with fencehold.connect("memory://close-cancelled") as later:
        assert [row.is_live for row in await later.leases.list()] == [False, False]


async def test_two_closings_at_once_close_once() -> None:
    store = fencehold.connect("memory://closed-twice")
    await store.open()
    await store.leader("x").start()
    await asyncio.gather(store.close(), store.close())
    assert repr(store).endswith("(closed)>")


async def test_a_leader_stopped_at_once_while_it_starts_does_not_start() -> None:
    async with fencehold.connect("memory://stopped-at-once") as store:
        leader = store.leader("x")
        starting = asyncio.ensure_future(leader.start())
        await asyncio.sleep(0)
        leader._stop_at_once()
        await asyncio.wait_for(starting, 4)  # an attempt would be waited for longer
        assert leader.state is LockState.STOPPED
        assert not await leader.wait_for_leadership(0)


async def test_a_store_whose_opening_was_cancelled_after_it_had_opened_is_closed(shared_thread: KeeperThread) -> None:
    opening = asyncio.ensure_future(fencehold.connect("memory://open-cancelled").open())
    await asyncio.sleep(0)
    while len(shared_thread._tasks) < 2:  # this loop stands still, while the keeper's thread opens the store
        time.sleep(0.01)
    await cancel_often(opening)
    await until_idle(shared_thread)
    assert shared_thread.users == 1


async def test_an_engine_given_up_while_it_opens_starts_no_tasks() -> None:
    opened = asyncio.Event()

    class Slow(MemoryBackend):
        async def open(self, limit_s: float) -> None:
            await opened.wait()

    engine = KeeperServices(Slow(Shelf()), BootClock(), StoreFacts(LogSink()))
    opening = asyncio.ensure_future(engine.open(1.0))
    await asyncio.sleep(0)
    await engine.give_up()
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert engine._tasks == []


def test_a_task_of_a_store_that_nobody_closed_is_not_collected() -> None:
    thread = KeeperThread()
    begun = threading.Event()

    async def waits() -> None:
        asyncio.get_running_loop().call_soon(begun.set)
        await asyncio.Event().wait()  # nobody else knows of this event: nothing but the loop could keep the task

    thread.post(thread.loop.create_task, waits())
    assert begun.wait(10)
    gc.collect()
    assert len(asyncio.all_tasks(thread.loop)) == 1
    thread.stop()
    thread._thread.join(10)


def test_a_program_that_never_closes_its_store_ends_without_a_warning(tmp_path: Path) -> None:
    program = """
import asyncio, gc, fencehold
async def lead(store):
    async with store.leader("x", lease=0.3) as leader:
        async for term in leader.terms():
            async with term:
                await asyncio.Event().wait()
async def main():
    store = fencehold.connect("memory://never-closed")
    await store.open()
    leading = asyncio.create_task(lead(store))
    await asyncio.sleep(0.1)
    leading.cancel()
    await asyncio.wait([leading])
asyncio.run(main())
gc.collect()
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_keepers_thread_ends_tasks_that_others_start_on_their_way_out() -> None:
    thread = KeeperThread()
    started = threading.Event()

    async def works(more: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            if more:
                asyncio.get_running_loop().create_task(works(more - 1))

    thread.submit(works(2))
    assert started.wait(10)
    thread.stop()
    thread._thread.join(10)
    assert thread.loop.is_closed()
    thread.post(pytest.fail, "nothing is called after the end")
