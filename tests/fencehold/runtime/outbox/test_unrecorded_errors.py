"""What a handler raised is in the log also where its row cannot say it: the lease was lost, or nothing was recorded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import fencehold
from fencehold.backends.memory.outbox.events import MemoryEventPort
from fencehold.telemetry.logs import level_of
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import LIMIT_S, Gate, becomes, enough_s, running, update
from tests.fencehold.runtime.outbox.test_recovery import Stubborn


class BreaksOff:
    """A handler that raises an error of its own when it is cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def __call__(self, event: fencehold.Claim) -> None:
        self.began.set()
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            raise LookupError("no such mailbox") from None


async def fails(event: Any) -> None:
    raise LookupError("no such mailbox")


def says_all(told: dict[str, Any], where: str) -> bool:
    return told["error"] == "LookupError: no such mailbox" and f"in {where}\n" in told["traceback"]


async def test_an_error_raised_after_the_lease_was_lost_is_told_with_its_traceback(url: str, opened: Opened) -> None:
    handle = BreaksOff()
    async with opened(url, lease=enough_s(url, 1.0)) as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(handle)):
            await handle.began.wait()
            await update(url, "lock_token = 'another/1'")
            told = await heard.once("event_lost", tracking_id=event)
            assert told["reason"] == "lease_lost"
            assert says_all(told, "__call__")


async def test_a_handler_that_only_heeds_its_cancellation_has_raised_nothing(url: str, opened: Opened) -> None:
    gate = Gate()
    async with opened(url, lease=enough_s(url, 1.0)) as (outbox, heard):
        await outbox.add("a", 1)
        async with running(outbox.worker(gate)):
            await gate.has(1)
            await update(url, "lock_token = 'another/1'")
            told = await heard.once("event_lost", reason="lease_lost")
            assert (told["error"], told["traceback"]) == (None, None)


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer when a failure is to be recorded."""

    async def fail(*_: Any) -> Any:
        raise fencehold.Unavailable("gone")

    monkeypatch.setattr(MemoryEventPort, "fail", fail)


@pytest.mark.usefixtures("unanswered")
async def test_an_error_that_could_not_be_recorded_in_time_is_told_with_its_traceback(opened: Opened) -> None:
    async with opened("memory://", lease=1) as (outbox, heard):
        await outbox.add("a", 1)
        async with running(outbox.worker(fails)):
            assert says_all(await heard.once("event_lost", reason="deadline_passed"), "fails")


@pytest.mark.usefixtures("unanswered")
async def test_an_error_that_could_not_be_recorded_when_the_worker_ends_is_told(opened: Opened) -> None:
    async with opened("memory://", lease=30) as (outbox, heard):
        await outbox.add("a", 1)
        async with running(outbox.worker(fails, shutdown_timeout="200ms")):
            await heard.once("worker_store_failed")
        assert says_all(heard.all("event_lost", reason="unconfirmed")[0], "fails")


async def test_an_error_raised_after_the_worker_has_ended_is_told(opened: Opened) -> None:
    stubborn, left = Stubborn(), asyncio.Event()

    async def handle(event: fencehold.Claim) -> None:
        left.set()
        await stubborn(event)
        raise LookupError("no such mailbox")

    async with opened("memory://", lease=30) as (outbox, heard):
        await outbox.add("a", 1)
        with stubborn:
            async with running(outbox.worker(handle, shutdown_timeout="200ms")):
                await left.wait()
        assert says_all(await heard.once("event_lost", reason="unconfirmed"), "handle")


async def test_what_a_handler_raises_that_ran_on_without_a_place_is_told_when_it_ends(opened: Opened) -> None:
    stubborn = Stubborn()

    async def handle(event: fencehold.Claim) -> None:
        await stubborn(event)
        raise LookupError("no such mailbox")

    async with opened("memory://", lease=1, max_retries=1) as (outbox, heard):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(handle, max_processing=1)):
            with stubborn:
                await heard.once("handler_hung", place="free")
            told = await heard.once("handler_ended_late", tracking_id=event)
            assert says_all(told, "handle")
            assert told["handler"].endswith("<locals>.handle")
            assert told["age_s"] >= 1
            assert level_of("handler_ended_late", told) > level_of("handler_ended_late", {})


async def test_the_error_of_a_list_is_told_for_each_event_and_its_traceback_once(url: str, opened: Opened) -> None:
    async with opened(url, retry_base="60s", retry_cap="60s") as (outbox, heard):
        ids = await outbox.add_many([("a", n) for n in range(20)])
        async with running(outbox.worker(fails, concurrency=20, batch_size=20)):
            for event in ids:
                assert "Traceback" in (await becomes(url, event, "FAILED"))["last_error"]
        told = heard.all("event_failed")
        assert [one["error"] for one in told] == ["LookupError: no such mailbox"] * 20
        assert says_all(told[0], "fails")
        assert {one["traceback"] for one in told[1:]} == {None}


async def test_a_worker_whose_call_is_cut_short_forgets_no_error(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` is cancelled while the store is being told of the failure, and does not answer."""
    asked = asyncio.Event()

    async def fail(*_: Any) -> Any:
        asked.set()
        await asyncio.sleep(LIMIT_S)

    monkeypatch.setattr(MemoryEventPort, "fail", fail)
    async with opened("memory://", lease=1) as (outbox, heard):
        await outbox.add("a", 1)
        run = asyncio.create_task(outbox.worker(fails).run())
        await asked.wait()
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        assert says_all(await heard.once("event_lost", reason="unconfirmed"), "fails")
