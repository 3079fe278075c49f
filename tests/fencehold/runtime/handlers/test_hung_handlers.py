"""Handlers that do not come to an end: told by name and age, shown in metrics, and, if asked for, given up."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import fencehold
from fencehold.runtime.core.keeper_thread import STOP_LIMIT_S
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.prometheus import PrometheusSink
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    LIMIT_S,
    Gate,
    Heard,
    ThreadGate,
    becomes,
    code_of,
    enough_s,
    eventually,
    running,
)

HERE = "tests.fencehold.runtime.handlers.test_hung_handlers"


async def waits(event: fencehold.Claim) -> None:
    await asyncio.sleep(LIMIT_S)


async def test_a_handler_that_takes_long_is_told_by_name_and_age(url: str, opened: Opened) -> None:
    async with opened(url, lease=enough_s(url, 1.0)) as (outbox, heard):
        event = await outbox.add("a", 1)
        worker = outbox.worker(waits, max_processing="3s", shutdown_timeout="100ms")
        async with running(worker):
            told = await heard.once("handler_slow")
            assert (told["handler"], told["tracking_id"]) == (f"{HERE}.waits", event)
            assert told["id"] == (await becomes(url, event, "PROCESSING"))["id"]
            assert 1.5 <= told["age_s"] < 3
            assert worker.in_flight == 1


async def test_a_thread_that_lost_its_lease_and_does_not_return_is_told_with_its_place(
    url: str, opened: Opened
) -> None:
    max_s = enough_s(url, 0.5)
    gate = ThreadGate()
    async with opened(url, lease=10 * max_s, max_retries=1) as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(gate, concurrency=2, max_processing=max_s)):
            try:
                told = await heard.once("handler_hung")
                assert (told["handler"], told["tracking_id"]) == (
                    "tests.fencehold.runtime.outbox.scene.ThreadGate",
                    event,
                )
                assert (told["reason"], told["place"]) == ("max_processing", "taken")
                assert told["age_s"] >= max_s
                assert not heard.all("worker_stuck"), "there is another place"
            finally:
                gate.opened.set()


@pytest.mark.fault("callbacks", "outbox")
async def test_a_worker_whose_places_are_all_taken_by_hung_handlers_says_so(url: str, opened: Opened) -> None:
    lease_s = enough_s(url, 0.5)
    gate, registry = ThreadGate(), CollectorRegistry()
    heard = Heard()
    async with fencehold.connect(url, facts=FanOut(PrometheusSink(registry), heard)) as store:
        outbox = store.outbox(lease=lease_s, max_retries=1)
        await store.init()
        await outbox.add_many([("a", 1), ("a", 2)])
        worker = outbox.worker(gate, concurrency=2, worker_id="w", max_processing=lease_s)
        async with running(worker):
            try:
                await gate.has(2)
                told = await heard.once("worker_stuck")
                assert (told["places"], told["handler"]) == (2, "tests.fencehold.runtime.outbox.scene.ThreadGate")
                assert told["age_s"] > 0
                await heard.once("worker_watched", hung=2)
                of_worker = {"outbox": "outbox", "worker_id": "w"}
                assert registry.get_sample_value("worker_handlers_hung", of_worker) == 2
                assert (registry.get_sample_value("worker_stuck_total", of_worker) or 0) >= 1
                assert (registry.get_sample_value("worker_oldest_handler_age_seconds", of_worker) or 0) >= lease_s
            finally:
                gate.opened.set()


async def test_a_blocked_event_loop_is_told_while_it_is_blocked_with_what_blocks_it(url: str, opened: Opened) -> None:
    told = threading.Event()

    async def blocks(event: fencehold.Claim) -> None:
        assert told.wait(LIMIT_S), "nobody said that the loop is blocked"

    async with opened(url, lease=enough_s(url, 1.0)) as (outbox, heard):
        real = heard.fact

        def fact(event: str, **fields: Any) -> None:
            real(event, **fields)
            if event == "worker_loop_blocked":
                told.set()

        heard.fact = fact  # type: ignore[method-assign]
        event = await outbox.add("a", 1)
        async with running(outbox.worker(blocks, max_processing=LIMIT_S)):
            await becomes(url, event, "COMPLETED")
        (blocked, *_) = heard.all("worker_loop_blocked")
        assert blocked["handler"].endswith("<locals>.blocks")
        assert blocked["age_s"] >= blocked["silent_s"] > 0
        assert "threading.py" in blocked["where"]
        assert any(watched["silent_s"] > 0 for watched in heard.all("worker_watched"))


async def test_what_blocks_the_loop_in_a_task_of_a_handler_s_own_is_told_with_the_handlers_in_hand(
    file_url: str, opened: Opened
) -> None:
    stuck = threading.Event()

    async def step() -> None:
        assert stuck.wait(LIMIT_S), "nobody gave up"

    async def gathers(event: fencehold.Claim) -> None:
        await asyncio.gather(step())

    async with opened(file_url, lease=1) as (outbox, heard):
        await outbox.add("a", 1)
        worker = outbox.worker(gathers, max_processing=LIMIT_S, give_up_after="1s")
        worker.on_stuck = lambda _: stuck.set()
        with pytest.raises(fencehold.WorkerStuck, match=r"in hand: .*gathers \(\d+\.\d s\)"):
            await asyncio.wait_for(worker.run(), LIMIT_S)
        told = heard.all("worker_loop_blocked")[0]
        assert told["handler"] is None
        assert "<locals>.gathers (" in told["in_hand"]


async def test_a_worker_that_is_busy_and_well_warns_of_nothing(url: str, opened: Opened) -> None:
    async def handle(event: fencehold.Claim) -> None:
        await asyncio.sleep(0.01)

    async with opened(url) as (outbox, heard):
        await outbox.add_many([("a", n) for n in range(50)])
        async with running(outbox.worker(handle, concurrency=2, give_up_after="10s")):
            await heard.once("worker_watched")
        for warning in ("handler_slow", "handler_hung", "worker_stuck", "worker_loop_blocked", "worker_gave_up"):
            assert heard.all(warning) == []


async def test_a_worker_with_nothing_in_hand_stops_without_waiting(file_url: str, opened: Opened) -> None:
    """For its heartbeat, its watch or its reaper: each is told to end."""
    async with opened(file_url) as (outbox, heard):
        worker = outbox.worker(waits)
        async with running(worker):
            await heard.once("worker_watched")
            began_s = time.monotonic()
            worker.stop()
            await asyncio.wait_for(worker.stopped.wait(), LIMIT_S)
            assert time.monotonic() - began_s < STOP_LIMIT_S


# --- giving up ---


async def test_without_give_up_after_it_never_gives_up(file_url: str, opened: Opened) -> None:
    gate = ThreadGate()
    async with opened(file_url, lease=0.5, max_retries=1) as (outbox, heard):
        await outbox.add("a", 1)
        worker = outbox.worker(gate, concurrency=1, max_processing=0.5)
        assert worker.settings.give_up_after_s is None
        async with running(worker):
            try:
                await heard.once("worker_stuck", times=2)
            finally:
                gate.opened.set()
            await becomes(file_url, await outbox.add("a", 2), "COMPLETED")


async def test_with_give_up_after_run_raises_once_all_places_are_taken_by_lost_handlers(
    url: str, opened: Opened
) -> None:
    lease_s = enough_s(url, 0.5)
    gate = ThreadGate()
    async with opened(url, lease=lease_s, max_retries=1) as (outbox, heard):
        await outbox.add("a", 1)
        stuck: list[fencehold.WorkerStuck] = []
        worker = outbox.worker(gate, concurrency=1, max_processing=lease_s, give_up_after=0.5)
        worker.on_stuck = stuck.append
        try:
            with pytest.raises(fencehold.WorkerStuck, match="ThreadGate, has run for") as error:
                await asyncio.wait_for(worker.run(), LIMIT_S)
            assert code_of(error) == "worker_stuck"
            assert "all its 1 places" in error.value.message
            assert stuck == [error.value]
            assert heard.all("worker_gave_up")
            assert gate.inside == 1, "a thread cannot be stopped"
        finally:
            gate.opened.set()


async def test_with_give_up_after_a_blocked_loop_is_told_by_a_thread_and_raised_when_it_turns(
    url: str, opened: Opened
) -> None:
    stuck = threading.Event()
    by: list[str] = []

    def on_stuck(error: fencehold.WorkerStuck) -> None:
        by.append(threading.current_thread().name)
        stuck.set()

    async def blocks(event: fencehold.Claim) -> None:
        assert stuck.wait(LIMIT_S), "nobody gave up"

    async with opened(url, lease=enough_s(url, 2.0)) as (outbox, _):
        gate = Gate()
        beside = await outbox.add("beside", 1)
        worker = outbox.worker({"blocks": blocks, "beside": gate}, max_processing=LIMIT_S, give_up_after="300ms")
        worker.on_stuck = on_stuck
        run = asyncio.create_task(worker.run())
        await gate.has(1)
        await outbox.add("blocks", 2)
        with pytest.raises(fencehold.WorkerStuck, match=r"not turned for .* in the handler .*blocks"):
            await asyncio.wait_for(run, LIMIT_S)
        assert by == ["fencehold-keeper"]
        assert (await becomes(url, beside, "PENDING"))["retry_count"] == 0, "handed back: no fault of its own"


async def test_a_hook_that_raises_does_not_keep_it_from_giving_up(file_url: str, opened: Opened) -> None:
    gate = ThreadGate()

    def broken(error: fencehold.WorkerStuck) -> None:
        raise RuntimeError("no pager")

    async with opened(file_url, lease=0.5, max_retries=1) as (outbox, heard):
        await outbox.add("a", 1)
        worker = outbox.worker(gate, concurrency=1, max_processing=0.5, give_up_after=0.3)
        worker.on_stuck = broken
        try:
            with pytest.raises(fencehold.WorkerStuck):
                await asyncio.wait_for(worker.run(), LIMIT_S)
        finally:
            gate.opened.set()
        assert "no pager" in (await heard.once("callback_failed"))["error"]


async def test_a_worker_that_stops_does_not_give_up(file_url: str, opened: Opened) -> None:
    """Its shutdown timeout ends it."""
    gate = ThreadGate()
    async with opened(file_url, lease=4, max_retries=1) as (outbox, heard):
        await outbox.add("a", 1)
        worker = outbox.worker(gate, concurrency=1, max_processing=0.3, shutdown_timeout="3s", give_up_after=0.3)
        run = asyncio.create_task(worker.run())
        try:
            await gate.has(1)
            worker.stop()
            await asyncio.wait_for(run, LIMIT_S)
        finally:
            gate.opened.set()
        assert heard.all("worker_gave_up") == []


async def test_settings_of_it_that_cannot_work_are_refused(file_url: str) -> None:
    outbox = fencehold.connect(file_url).outbox()
    for wrong in (0, -1, "soon", True):
        with pytest.raises(fencehold.ConfigurationError) as error:
            outbox.worker(waits, give_up_after=wrong)
        assert code_of(error) == "bad_settings"


async def test_a_second_cancellation_does_not_free_the_place_of_a_running_thread(file_url: str, opened: Opened) -> None:
    """Lost, and then called off by a stop: the thread runs all the same, and the stop waits for it."""
    gate = ThreadGate()
    async with opened(file_url, lease=10, max_retries=1) as (outbox, heard):
        await outbox.add("a", 1)
        worker = outbox.worker(gate, concurrency=1, max_processing=0.5, shutdown_timeout="1s")
        run = asyncio.create_task(worker.run())
        try:
            await heard.once("handler_hung")
            for claimed in worker._context.claimed_events.values():
                assert claimed.task
                claimed.task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert worker.in_flight == gate.inside == 1
        finally:
            gate.opened.set()

        async def is_over() -> bool:
            return worker.in_flight == 0

        await eventually(is_over)
        worker.stop()
        await run


async def test_a_plain_function_that_returns_a_coroutine_after_it_was_called_off_is_not_done(
    file_url: str, opened: Opened
) -> None:
    gate, begun = ThreadGate(), list[int]()

    async def rest() -> None:
        begun.append(1)

    def handle(event: fencehold.Claim) -> Any:
        gate(event)
        return rest()

    async with opened(file_url) as (outbox, _):
        event = await outbox.add("a", 1)
        run = asyncio.create_task(outbox.worker(handle).run())
        await gate.has(1)
        run.cancel()
        asyncio.get_running_loop().call_later(0.05, gate.opened.set)
        with pytest.raises(asyncio.CancelledError):
            await run
        assert ((await becomes(file_url, event, "PENDING"))["retry_count"], begun) == (0, [])


def test_the_error_leaves_asyncio_run_while_the_thread_still_hangs(file_url: str) -> None:
    """So that the program can end itself: Python's own exit would wait for the thread."""
    gate = ThreadGate()

    async def main() -> None:
        async with fencehold.connect(file_url) as store:
            outbox = store.outbox(lease=0.5, max_retries=1)
            await store.init()
            await outbox.add("a", 1)
            await outbox.worker(gate, concurrency=1, max_processing=0.5, give_up_after=0.3).run()

    try:
        with pytest.raises(fencehold.WorkerStuck):
            asyncio.run(main())
        assert gate.inside == 1
    finally:
        gate.opened.set()


async def test_a_plain_function_that_returns_a_coroutine_after_its_lease_was_lost_is_not_awaited(
    file_url: str, opened: Opened
) -> None:
    """The event may be in other hands by then."""
    gate, begun = ThreadGate(), list[int]()

    async def rest() -> None:
        begun.append(1)

    def handle(event: fencehold.Claim) -> Any:
        gate(event)
        return rest()

    async with opened(file_url, lease=0.5, max_retries=1) as (outbox, heard):
        await outbox.add("a", 1)
        worker = outbox.worker(handle, concurrency=1, max_processing=0.5)
        async with running(worker):
            try:
                await heard.once("handler_hung")
            finally:
                gate.opened.set()
            await heard.once("event_aborted")
        assert begun == []
