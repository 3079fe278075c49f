"""What becomes of the events of workers that died: all are handled, soon, and none is given up for another's fault."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.laborers import LaborerProcess, laborers
from tests.fencehold.runtime.outbox.scene import (
    Gate,
    ThreadGate,
    all_are,
    becomes,
    enough_s,
    eventually,
    lapse,
    make_due,
    rows,
    running,
)


async def recovered(outbox: fencehold.Outbox, url: str, count: int, times: int) -> None:
    """So many due events were so often in the hands of a worker that died."""
    for _ in range(times):
        assert len(await eventually(lambda: outbox.claim(count, "dead"))) == count
        await lapse(url)
        assert len(await outbox.reap()) == count


class Together:
    """A handler that notes which events are in hand at the same moment."""

    def __init__(self) -> None:
        self.in_hand: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def __call__(self, event: fencehold.Claim) -> None:
        self.in_hand[event.event_type] += 1
        self.most |= self.in_hand
        assert event.recovered == (event.event_type != "new")
        await asyncio.sleep(0)
        self.in_hand[event.event_type] -= 1


@pytest.mark.parametrize("ordered", [False, True])
async def test_events_recovered_once_are_handled_side_by_side_up_to_the_concurrency(
    url: str, opened: Opened, ordered: bool
) -> None:
    async with opened(url, ordered=ordered) as (outbox, _):
        await outbox.add_many([("once", {})] * 12)
        await recovered(outbox, url, 12, times=1)
        handle = Together()
        async with running(outbox.worker(handle, concurrency=5)):
            await all_are(url, "COMPLETED", 12)
        assert handle.most["once"] == 5


@pytest.mark.parametrize("ordered", [False, True])
async def test_events_recovered_twice_are_handled_one_at_a_time_beside_others(
    url: str, opened: Opened, ordered: bool
) -> None:
    """One of them may be why workers die: the others must not die of it again and again."""
    async with opened(url, ordered=ordered) as (outbox, _):
        await outbox.add_many([("twice", {})] * 4)
        await recovered(outbox, url, 4, times=2)
        await outbox.add_many([("new", {})] * 8)
        handle = Together()
        async with running(outbox.worker(handle, concurrency=10)):
            await all_are(url, "COMPLETED", 12)
        assert handle.most["twice"] == 1
        assert handle.most["new"] > 1


@pytest.mark.parametrize("ordered", [False, True])
async def test_events_that_failed_once_and_were_recovered_once_are_handled_side_by_side_too(
    url: str, opened: Opened, ordered: bool
) -> None:
    """What is flaky and then loses its worker waits for nobody: a failed try killed no worker."""
    async with opened(url, ordered=ordered) as (outbox, _):
        await outbox.add_many([("once", {})] * 12)
        for claim in await outbox.claim(12, "flaky"):
            await outbox.fail(claim, "503")
        await make_due(url)
        await recovered(outbox, url, 12, times=1)
        handle = Together()
        async with running(outbox.worker(handle, concurrency=5)):
            await all_are(url, "COMPLETED", 12)
        assert handle.most["once"] == 5


@pytest.mark.parametrize("ordered", [False, True])
async def test_events_that_failed_twice_and_were_handed_back_are_handled_side_by_side(
    url: str, opened: Opened, ordered: bool
) -> None:
    async with opened(url, ordered=ordered) as (outbox, heard):
        await outbox.add_many([("new", {})] * 6)
        for _ in range(2):
            for claim in await outbox.claim(6, "flaky"):
                await outbox.fail(claim, "503")
            await make_due(url)
        gate = Gate()
        run = asyncio.create_task(outbox.worker(gate).run())
        await gate.has(6)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        assert heard.all("events_handed_back", count=6)
        handle = Together()
        async with running(outbox.worker(handle, concurrency=6)):
            await all_are(url, "COMPLETED", 6)
        assert handle.most["new"] == 6


# --- handlers that hang ---


@pytest.mark.parametrize("times", [1, 2])
async def test_an_innocent_event_of_a_killed_worker_is_handled_though_every_worker_has_a_hung_handler(
    url: str, opened: Opened, times: int
) -> None:
    """Hung in the handler of a recovered event, and for ever: a thread cannot be stopped."""
    lease_s, gate = enough_s(url, 0.6), ThreadGate()
    async with opened(url, lease=lease_s, max_retries=times + 1) as (outbox, heard):
        *_, innocent = await outbox.add_many([("hang1", 1), ("hang2", 2), ("good", 3)])
        await recovered(outbox, url, 3, times - 1)
        assert len(await outbox.claim(3, "dead", lease="1h")) == 3
        await lapse(url, "event_type <> 'good'")
        assert len(await outbox.reap()) == 2
        tables: list[Any] = [{"hang1": gate, "good": quick}, {"hang2": gate, "good": quick}]
        workers = [outbox.worker(table, concurrency=2, max_processing=lease_s) for table in tables]
        with opening(gate):
            async with running(*workers):
                with opening(gate):
                    await gate.has(2)
                    await heard.once("handler_hung", times=2)
                    await lapse(url, "event_type = 'good'")
                    assert (await becomes(url, innocent, "COMPLETED", 15))["retry_count"] == times
                    assert gate.inside == 2


async def quick(event: fencehold.Claim) -> None:
    await asyncio.sleep(0)


@contextlib.contextmanager
def opening(gate: ThreadGate) -> Iterator[None]:
    """At the latest at the end of the block: a stop would wait for those inside."""
    try:
        yield
    finally:
        gate.opened.set()


class Stubborn:
    """A handler that heeds no cancellation; inside the block `with stubborn` it does not end unless it is told to."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.entered = self.left = 0

    async def __call__(self, event: fencehold.Claim) -> None:
        self.entered += 1
        while not self.over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.over.wait()
        self.left += 1

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.over.set()


async def test_the_place_of_a_lost_handler_that_swallows_its_cancellation_is_free_again(
    url: str, opened: Opened
) -> None:
    # A lease much longer than that: were it lost for another reason, the event would be here a second time.
    max_s, stubborn = enough_s(url, 1.0), Stubborn()
    async with opened(url, lease=10 * max_s, retry_base="60s", retry_cap="60s") as (outbox, heard):
        hangs = await outbox.add("hang", 1)
        worker = outbox.worker({"hang": stubborn, "good": quick}, concurrency=1, max_processing=max_s)
        async with running(worker):
            with stubborn:
                failed = await becomes(url, hangs, "FAILED")
                assert "longer than max_processing" in failed["last_error"]
                await becomes(url, await outbox.add("good", 2), "COMPLETED")

                async def one_runs_on() -> bool:  # the worker learns a moment later that the other one is recorded
                    return worker.in_flight == 1

                await eventually(one_runs_on)
                told = await heard.once("handler_hung", tracking_id=hangs)
                assert told["handler"] == "tests.fencehold.runtime.outbox.test_recovery.Stubborn"
                assert (told["place"], told["reason"]) == ("free", "max_processing")
                assert told["age_s"] >= max_s - 0.1

            async def is_over() -> bool:
                return worker.in_flight == 0

            await eventually(is_over)


async def test_what_a_lost_handler_returns_at_last_is_not_recorded_a_second_time(file_url: str, opened: Opened) -> None:
    stubborn = Stubborn()

    async def handle(event: fencehold.Claim) -> None:
        if event.attempt == 1:
            await stubborn(event)

    async with opened(file_url, lease=10, retry_base="100ms") as (outbox, heard):
        event = await outbox.add("a", 1)
        worker = outbox.worker(handle, max_processing=1)
        async with running(worker):
            with stubborn:
                found = await becomes(file_url, event, "COMPLETED")

            async def is_over() -> bool:
                return worker.in_flight == 0

            await eventually(is_over)
        assert await rows(file_url) == [found]
        assert (found["retry_count"], stubborn.left) == (1, 1)
        assert sum(fact["completed"] for fact in heard.all("events_completed")) == 1
        assert (len(heard.all("event_aborted")), heard.all("event_lost")) == (1, [])


@pytest.mark.long
async def test_no_more_than_so_many_handlers_run_on_without_a_place(
    file_url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything has a limit: a handler that always swallows its cancellation must not eat the memory."""
    monkeypatch.setattr("fencehold.runtime.outbox.handler_runs.STRAYS_MAX", 2)
    stubborn = Stubborn()
    async with opened(file_url, lease=0.6, max_retries=1) as (outbox, heard):
        await outbox.add_many([("a", n) for n in range(6)])
        worker = outbox.worker(stubborn, concurrency=1, max_processing=0.6)
        async with running(worker):
            with stubborn:
                await heard.once("handler_hung", place="taken")
                assert stubborn.entered == worker.in_flight == 3
            await all_finished(file_url, 6)


async def all_finished(url: str, count: int) -> None:
    async def is_so() -> bool:
        done = [found for found in await rows(url) if found["status"] in ("COMPLETED", "DEAD_LETTER")]
        return len(done) == count

    await eventually(is_so)


# --- workers that are really killed ---


class Fleet:
    """Workers that are started anew when they die, as a supervisor does."""

    def __init__(self, start: Any, kind: str, size: int, *options: str) -> None:
        self._start, self._kind, self._options = start, kind, options
        self.started = 0
        self._alive: list[LaborerProcess] = [self._new() for _ in range(size)]

    def _new(self) -> LaborerProcess:
        self.started += 1
        started: LaborerProcess = self._start(self._kind, f"w{self.started}", *self._options)
        return started

    def look(self) -> None:
        for place, process in enumerate(self._alive):
            if process.has_ended():
                self._alive[place] = self._new()


@pytest.mark.long
@pytest.mark.limit(180)
async def test_one_killer_among_a_hundred_innocents_has_no_innocent_given_up(
    pg_or_sqlite_url: str, opened: Opened
) -> None:
    """It kills five workers, each with other events in hand; of those none loses more than two tries to it."""
    url = pg_or_sqlite_url
    async with opened(url, lease=2, max_retries=5) as (outbox, _):
        await outbox.add_many([("innocent", n) for n in range(50)])
        killer = await outbox.add("killer", {})
        await outbox.add_many([("innocent", n) for n in range(50)])
        with laborers(url) as start:
            fleet = Fleet(start, "poison", 2, "--concurrency", "10", "--lease", "2s", "--seconds", "0.05")

            async def all_done() -> bool:
                fleet.look()
                return all(found["status"] in ("COMPLETED", "DEAD_LETTER") for found in await rows(url))

            await eventually(all_done, 150)
        found = await rows(url)
        assert [one["tracking_id"] for one in found if one["status"] == "DEAD_LETTER"] == [killer]
        assert fleet.started == 2 + 5
        lost = [one["retry_count"] for one in found if one["event_type"] == "innocent"]
        assert 1 <= max(lost) <= 2, Counter(lost)


@pytest.mark.long
@pytest.mark.limit(120)
async def test_a_hundred_events_of_a_killed_worker_are_handled_in_seconds(
    pg_or_sqlite_url: str, opened: Opened
) -> None:
    """0.5 s each, two workers of ten: five rounds, where one after the other would take 25 s."""
    url = pg_or_sqlite_url
    async with opened(url, lease=3, reap_every=1) as (outbox, _):
        await outbox.add_many([("slow", n) for n in range(100)])
        with laborers(url) as start:
            dying = start("wait", "dying", "--concurrency", "100", "--lease", "3s")
            for _ in range(100):
                await asyncio.to_thread(dying.wait_for, "began")
            options = ("--concurrency", "10", "--lease", "3s", "--seconds", "0.5")
            others = [start("poison", name, *options) for name in ("a", "b")]
            for other in others:
                await asyncio.to_thread(other.wait_for, "worker_started")
            dying.kill()
            began_s = time.monotonic()
            await all_are(url, "COMPLETED", 100)
            took_s = time.monotonic() - began_s
        assert took_s < 3 + 1 + 8, "lease + reaper interval + what the handlers need, and some for a busy machine"
