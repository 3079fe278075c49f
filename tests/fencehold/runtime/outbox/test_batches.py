"""Handlers of lists: one bad event in a list costs the others one try, and buries none of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import fencehold
from fencehold.model.outbox.settings import outbox_settings, worker_settings
from fencehold.ports.fact_table import StoreFacts
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.handlers.handlers import Handlers
from fencehold.runtime.outbox.context import ClaimedEvent, OutboxAccess, WorkerContext
from fencehold.runtime.outbox.handler_runs import HandlerRuns
from fencehold.telemetry.logs import LogSink
from fencehold.telemetry.traces import NoTraces
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    LIMIT_S,
    all_are,
    becomes,
    enough_s,
    eventually,
    make_due,
    rows,
    running,
    update,
)

BAD = 17


class Lists:
    """A handler that notes the lists it gets, and raises when the bad event is in one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.seen: list[list[int]] = []
        self._error = error or ValueError("bad event")

    async def __call__(self, events: list[fencehold.Claim]) -> None:
        self.seen.append([event.payload for event in events])
        if any(event.payload == BAD for event in events):
            raise self._error


async def outcomes(url: str) -> dict[str, int]:
    statuses = [found["status"] for found in await rows(url)]
    return {status: statuses.count(status) for status in set(statuses)}


async def all_over(url: str) -> dict[str, int]:
    async def is_so() -> dict[str, int] | None:
        found = await outcomes(url)
        return found if found.keys() <= {"COMPLETED", "DEAD_LETTER"} else None

    found: dict[str, int] = await eventually(is_so)
    return found


async def test_after_a_failed_batch_its_events_are_tried_one_by_one(url: str, opened: Opened) -> None:
    async with opened(url, max_retries=3, retry_base="100ms", retry_cap="100ms") as (outbox, _):
        ids = await outbox.add_many([("a", n) for n in range(50)])
        handle = Lists()
        async with running(outbox.worker(handle, concurrency=50, batch_size=50, poll_every="50ms")):
            assert await all_over(url) == {"COMPLETED": 49, "DEAD_LETTER": 1}
        assert (await becomes(url, ids[BAD], "DEAD_LETTER"))["retry_count"] == 3
        assert max(map(len, handle.seen)) == 50
        assert sum(len(events) > 1 for events in handle.seen if BAD in events) == 1, "then alone"
        assert {found["retry_count"] for found in await rows(url, "status = 'COMPLETED'")} == {1}


async def test_another_worker_tries_them_one_by_one_too(url: str, opened: Opened) -> None:
    """Their rows say so, not the worker that failed."""
    async with opened(url, retry_base="60s", retry_cap="60s") as (outbox, _):
        await outbox.add_many([("a", n) for n in range(10, 20)])
        async with running(outbox.worker(Lists(), concurrency=10, batch_size=10)):
            await all_are(url, "FAILED", 10)
        await make_due(url)
        handle = Lists()
        async with running(outbox.worker(handle, concurrency=10, batch_size=10)):

            async def nine_are_done() -> bool:
                return await outcomes(url) == {"COMPLETED": 9, "FAILED": 1}

            await eventually(nine_are_done)
        assert sorted(map(len, handle.seen)) == [1] * 10


async def test_a_reject_of_several_events_buries_none_but_the_one_it_is_raised_for_alone(
    url: str, opened: Opened
) -> None:
    async with opened(url, retry_base="100ms", retry_cap="100ms") as (outbox, heard):
        ids = await outbox.add_many([("a", n) for n in range(20)])
        handle = Lists(fencehold.Reject("no such customer"))
        async with running(outbox.worker(handle, concurrency=20, batch_size=20, poll_every="50ms")):
            assert await all_over(url) == {"COMPLETED": 19, "DEAD_LETTER": 1}
        buried = await becomes(url, ids[BAD], "DEAD_LETTER")
        assert buried["retry_count"] == 2, "once with the others, once alone"
        assert "no such customer" in buried["last_error"]
        assert len(heard.all("event_failed", status="DEAD_LETTER")) == 1


async def test_an_event_on_its_last_try_shares_no_list(url: str, opened: Opened) -> None:
    """With max_retries=1 that is every event: the failure of a list would bury all of it at once."""
    async with opened(url, max_retries=1) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(20)])
        handle = Lists()
        async with running(outbox.worker(handle, concurrency=20, batch_size=20)):
            assert await all_over(url) == {"COMPLETED": 19, "DEAD_LETTER": 1}
        assert {len(events) for events in handle.seen} == {1}


class Held:
    """A handler of lists that waits until it is cancelled; from the second list on it returns at once."""

    def __init__(self) -> None:
        self.lists: list[int] = []
        self.began = asyncio.Event()

    async def __call__(self, events: list[fencehold.Claim]) -> None:
        self.lists.append(len(events))
        self.began.set()
        if len(self.lists) == 1:
            await asyncio.sleep(LIMIT_S)


async def test_an_event_that_loses_its_lease_costs_the_others_of_its_list_no_try(url: str, opened: Opened) -> None:
    handle = Held()
    async with opened(url, lease=enough_s(url, 3.0)) as (outbox, heard):
        lost, *others = await outbox.add_many([("a", n) for n in range(5)])
        async with running(outbox.worker(handle, concurrency=5, batch_size=5)):
            await handle.began.wait()
            await update(url, "lock_token = 'another/1'", f"tracking_id = '{lost}'")
            await heard.once("event_lost", tracking_id=lost, reason="lease_lost")
            for event in others:
                found = await becomes(url, event, "COMPLETED")
                assert (found["retry_count"], found["last_error"]) == (0, None)
        assert heard.all("events_handed_back", count=4)
        assert heard.all("event_failed") == []


async def test_a_list_that_takes_too_long_is_a_failed_try_of_each(url: str, opened: Opened) -> None:
    max_s = enough_s(url, 1.0)
    async with opened(url, lease=10 * max_s, retry_base="60s", retry_cap="60s") as (outbox, _):
        await outbox.add_many([("a", n) for n in range(5)])
        async with running(outbox.worker(Held(), concurrency=5, batch_size=5, max_processing=max_s)):
            await all_are(url, "FAILED", 5)
        assert all("longer than max_processing" in found["last_error"] for found in await rows(url))


async def test_if_one_event_of_a_list_took_too_long_all_of_it_did() -> None:
    """Its heartbeat loses them one after the other, on another thread: the handler may end in between."""
    ended: list[tuple[str, bool]] = []
    handlers = Handlers(Held(), 1, argument="events")
    results: Any = SimpleNamespace(
        ended=lambda claimed, error: ended.append((claimed.ended_because, isinstance(error, asyncio.CancelledError)))
    )
    clock: Any = BootClock()
    context: Any = SimpleNamespace(store=SimpleNamespace(traces=NoTraces(), clock=clock, facts=StoreFacts(LogSink())))
    outbox = OutboxAccess("outbox", outbox_settings(), context)
    worker = WorkerContext(outbox, "w", handlers, worker_settings(30, concurrency=2, batch_size=2))
    runs = HandlerRuns(worker, results)
    claimed_events = [
        ClaimedEvent(fencehold.Claim(n, str(n), "a", "1", "w/1"), clock, clock.now_s(), 60) for n in range(2)
    ]
    runs.add(claimed_events)
    runs.begin()
    await asyncio.sleep(0)
    claimed_events[0].end("max_processing")
    runs.lose(claimed_events[0])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == [("max_processing", True)] * 2
