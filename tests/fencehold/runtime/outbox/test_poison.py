"""Events and handlers that harm their worker, and what must not happen to the others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import fencehold
from fencehold.model.names import LEASE_NAME_CHARS_MAX
from fencehold.runtime.outbox.context import reaper_lease
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import becomes, enough_s, lapse, row, running


class Weird(BaseException):
    """Neither an Exception nor anything that ends a program."""


async def test_a_claim_by_hand_takes_all_that_were_recovered(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", {})] * 5)
        await outbox.claim(5, "dead")
        await lapse(url)
        await outbox.reap()
        claims = await outbox.claim(5, "me")
        assert [claim.attempt for claim in claims] == [2] * 5


def stop_iteration(event: fencehold.Claim) -> None:
    next(iter(()))


async def weird(event: fencehold.Claim) -> None:
    raise Weird("boom")


async def exits(event: fencehold.Claim) -> None:
    sys.exit(5)


def exits_on_a_thread(event: fencehold.Claim) -> None:
    sys.exit(5)


@pytest.mark.parametrize(
    ("handler", "words"),
    [(stop_iteration, "StopIteration"), (weird, "Weird: boom"), (exits, "SystemExit: 5"), (exits_on_a_thread, "5")],
)
@pytest.mark.parametrize("batch_size", [None, 3])
async def test_whatever_a_handler_raises_is_a_failed_try_and_the_worker_goes_on(
    url: str, opened: Opened, handler: Callable[[Any], Any], words: str, batch_size: int | None
) -> None:
    async with opened(url, max_retries=1) as (outbox, _):
        bad = [await outbox.add("bad", n) for n in range(3)]
        handled = asyncio.Event()

        async def good(event: Any) -> None:
            handled.set()

        worker = outbox.worker({"bad": handler, "good": good}, concurrency=batch_size or 2, batch_size=batch_size)
        async with running(worker):
            for event in bad:
                assert words in (await becomes(url, event, "DEAD_LETTER"))["last_error"]
            await outbox.add("good", {})
            await asyncio.wait_for(handled.wait(), 10)
        assert worker.in_flight == 0


async def test_a_raised_lease_keeps_what_is_in_hand(url: str, opened: Opened) -> None:
    short_s = enough_s(url, 0.6)
    async with opened(url, lease=short_s) as (outbox, heard):
        event = await outbox.add("a", {})
        begun = asyncio.Event()

        async def handle(event: fencehold.Claim) -> None:
            begun.set()
            await heard.once("worker_heartbeat", times=2)

        async with running(outbox.worker(handle, max_processing="60s")):
            await asyncio.wait_for(begun.wait(), 10)
            outbox.configure(lease=10 * short_s)  # renewed every third of it: seldom enough for the short one to end
            assert (await becomes(url, event, "COMPLETED"))["retry_count"] == 0
        assert heard.all("event_lost") == []


async def test_a_time_that_cannot_be_read_is_refused_by_the_table(schema_url: str, opened: Opened) -> None:
    async with opened(schema_url) as (outbox, _):
        event = await outbox.add("a", {})
        for time in ("infinity", "-infinity", "0044-03-15 BC", "12000-01-01"):
            with psycopg.connect(schema_url) as conn, pytest.raises(psycopg.errors.CheckViolation):
                conn.execute("UPDATE outbox SET due_at = %s", [time])
        assert (await row(schema_url, event))["status"] == "PENDING"


def test_outboxes_with_long_names_have_reapers_of_their_own() -> None:
    long = "analytics_prod.customer_subscription_lifecycle_domain_events_v"
    leases = {reaper_lease(name) for name in ("outbox", f"{long}1", f"{long}2")}
    assert len(leases) == 3
    assert all(len(lease) <= LEASE_NAME_CHARS_MAX for lease in leases)
    assert reaper_lease("outbox") == "outbox reaper"
