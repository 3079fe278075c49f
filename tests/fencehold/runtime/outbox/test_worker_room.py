"""How much a worker takes on: never more than it can start, nothing while paused or full, all of it at the end."""

import asyncio
from typing import Any

import pytest

import fencehold
from fencehold.backends.postgres.outbox.events import PostgresEventPort
from fencehold.backends.sqlite.outbox.events import SqliteEventPort
from fencehold.backends.sqlserver.outbox.events import SqlServerEventPort
from fencehold.ports.events import Turn
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    Gate,
    ThreadGate,
    all_are,
    becomes,
    code_of,
    enough_s,
    eventually,
    lapse,
    row,
    running,
    statuses,
)

PORTS = (PostgresEventPort, SqliteEventPort, SqlServerEventPort)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_it_claims_only_what_it_can_start(url: str, opened: Opened, concurrency: int) -> None:
    """Each completion makes room for one: at no time is more held than runs."""
    most_held = 0

    async def handle(event: fencehold.Claim) -> None:
        nonlocal most_held
        most_held = max(most_held, (await statuses(url)).count("PROCESSING"))

    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(12)])
        async with running(outbox.worker(handle, concurrency=concurrency)):
            await all_are(url, "COMPLETED", 12)
    assert 0 < most_held <= concurrency


async def test_a_full_worker_takes_the_next_as_soon_as_one_is_done(url: str, opened: Opened) -> None:
    gates = {n: asyncio.Event() for n in range(3)}
    began: asyncio.Queue[int] = asyncio.Queue()

    async def handle(event: fencehold.Claim) -> None:
        began.put_nowait(event.payload)
        await gates[event.payload].wait()

    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(3)])
        async with running(outbox.worker(handle, concurrency=2, poll_every="1h")), asyncio.timeout(10):
            assert {await began.get(), await began.get()} == {0, 1}
            gates[1].set()
            assert await began.get() == 2
            gates[0].set()
            gates[2].set()
            await all_are(url, "COMPLETED", 3)


async def test_a_paused_worker_finishes_what_it_has_and_claims_nothing_until_resumed(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate()
        first = await outbox.add("a", 1)
        worker = outbox.worker(gate, poll_every="1h")
        async with running(worker):
            await gate.has(1)
            worker.pause()
            await heard.once("worker_paused")
            second = await outbox.add("a", 2)
            gate.open()
            await becomes(url, first, "COMPLETED")
            assert (await row(url, second))["status"] == "PENDING", "though there was a hint, and room"
            assert len(heard.all("events_claimed")) == 1
            worker.resume()
            await becomes(url, second, "COMPLETED")
        assert len(heard.all("worker_paused")) == len(heard.all("worker_resumed")) == 1


async def test_a_worker_paused_from_the_start_claims_nothing(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate(is_open=True)
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, poll_every="1h")
        worker.pause()
        async with running(worker):
            await heard.once("worker_started")
            await heard.once("reaper_run")
            assert gate.entered == []
            worker.resume()
            await becomes(url, event, "COMPLETED")


async def test_a_saturation_hook_that_raises_is_told_and_does_not_stop_the_work(url: str, opened: Opened) -> None:
    def broken() -> bool:
        raise RuntimeError("no gauge")

    async with opened(url) as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(Gate(is_open=True), saturated=broken)):
            await becomes(url, event, "COMPLETED")
        assert "no gauge" in (await heard.once("worker_hook_failed"))["error"]


async def test_downstream_that_fills_up_in_between_is_fed_as_it_empties(url: str, opened: Opened) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def feed(event: fencehold.Claim) -> None:
        queue.put_nowait(event.payload)

    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(8)])
        worker = outbox.worker(feed, concurrency=2, saturated=lambda: queue.qsize() >= 2, poll_every="10ms")
        seen: list[int] = []
        async with running(worker), asyncio.timeout(15):
            while len(seen) < 8:
                assert queue.qsize() <= 4, "two were in flight when it filled up"
                seen.append(await queue.get())
        assert sorted(seen) == list(range(8))


async def test_an_event_lost_and_claimed_again_by_the_same_worker_keeps_its_heartbeat(url: str, opened: Opened) -> None:
    """The first try heeds no cancel; when it ends at last, the second is in full flight."""
    first_out, second_out = asyncio.Event(), asyncio.Event()
    entered: list[fencehold.Claim] = []

    async def stubborn(event: fencehold.Claim) -> None:
        entered.append(event)
        out = first_out if len(entered) == 1 else second_out
        while not out.is_set():
            try:
                await out.wait()
            except asyncio.CancelledError:
                continue

    async with opened(url, lease=enough_s(url, 0.6)) as (outbox, heard):
        event = await outbox.add("a", 1)
        worker = outbox.worker(stubborn, concurrency=2, poll_every="20ms", max_processing="60s")
        async with running(worker):
            await heard.once("events_claimed")
            await lapse(url)

            async def again() -> bool:
                return len(entered) == 2

            await eventually(again)
            assert worker.in_flight == 2, "both run, and both count"
            first_out.set()
            await heard.once("event_lost", tracking_id=event)
            beats = len(heard.all("worker_heartbeat"))
            await heard.once("worker_heartbeat", times=beats + 4)  # beyond one lease
            second_out.set()
            found = await becomes(url, event, "COMPLETED")
        assert (found["lock_token"], found["retry_count"]) == (entered[1].token, 1)


async def test_a_thread_that_outlives_its_lease_keeps_its_slot(url: str, opened: Opened) -> None:
    lease_s = enough_s(url, 0.5)
    async with opened(url, lease=lease_s, retry_base="100ms") as (outbox, heard):
        gate = ThreadGate()
        await outbox.add_many([("a", 1), ("a", 2), ("a", 3)])
        worker = outbox.worker(gate, concurrency=2, max_processing=lease_s, poll_every="20ms")
        async with running(worker):
            await gate.has(2)
            await heard.once("event_recovered", times=2)
            assert gate.most == gate.inside == 2
            assert len(gate.entered) == 2, "nothing is claimed that no thread could start"
            gate.opened.set()
            await all_are(url, "COMPLETED", 3)
        assert gate.most == 2


async def test_an_answer_that_comes_after_the_lease_is_over_starts_nothing(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the process was frozen between the claim and its answer."""
    is_first = [False] * 99 + [True]

    async with opened(url, lease=enough_s(url, 0.5), reap_every="100ms") as (outbox, heard):
        for port in PORTS:
            real = port.turn

            async def late(self: Any, *args: Any, real: Any = real) -> Turn:
                turn: Turn = await real(self, *args)
                if turn.claims and is_first.pop():
                    await heard.once("event_recovered")
                return turn

            monkeypatch.setattr(port, "turn", late)
        gate = Gate(is_open=True)
        event = await outbox.add("a", 1)
        async with running(outbox.worker(gate, poll_every="20ms")):
            await becomes(url, event, "COMPLETED")
        assert [claim.attempt for claim in gate.entered] == [2], "the first grant was over when it arrived"


async def test_a_worker_runs_once(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        worker = outbox.worker(Gate(is_open=True))
        async with running(worker):
            await heard.once("worker_started")
            with pytest.raises(fencehold.ConfigurationError) as error:
                await worker.run()
        assert code_of(error) == "already_run"


async def test_a_worker_stopped_before_it_ran_claims_nothing(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        worker = outbox.worker(Gate(is_open=True))
        worker.stop()
        async with asyncio.timeout(5):
            await worker.run()
        assert (await row(url, event))["status"] == "PENDING"


async def test_closing_the_store_stops_its_workers_first(url: str) -> None:
    async with fencehold.connect(url) as store:
        outbox = store.outbox()
        await store.init()
        gate = Gate()
        event = await outbox.add("a", 1)
        task = asyncio.create_task(outbox.worker(gate).run())
        await gate.has(1)
        asyncio.get_running_loop().call_later(0.05, gate.open)
    await task
    assert (await row(url, event))["status"] == "COMPLETED"
