"""An event whose worker is slow, stuck, frozen, cut off or dead: it is handled, and nothing stale counts."""

import asyncio
import contextlib
import sqlite3
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

import fencehold
from fencehold.model.outbox.settings import outbox_settings, worker_settings
from fencehold.runtime.core.clock import BootClock
from fencehold.runtime.outbox.context import ClaimedEvent
from fencehold.runtime.outbox.worker_background import EventRenewals
from fencehold.testing.proxy import ThreadedFaultProxy
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.laborers import laborers
from tests.fencehold.runtime.outbox.scene import Gate, Heard, all_are, becomes, enough_s, eventually, row, rows, running
from tests.servers.postgres import PostgresServer

LEASE_S = 0.5


@contextlib.contextmanager
def cut_off(url: str, proxy: ThreadedFaultProxy) -> Any:
    proxy.freeze()
    try:
        yield
    finally:
        proxy.heal()


def through(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()


@pytest.mark.limit(30)
async def test_a_healthy_handler_of_many_leases_is_started_once_and_completes(
    schema_url: str, file_url: str, opened: Opened
) -> None:
    """Two and a half leases as it is, ten with max_processing raised; both databases at once, to save time."""

    async def on(url: str) -> None:
        began: list[float] = []

        async def handle(event: fencehold.Claim) -> None:
            began.append(event.payload)
            await asyncio.sleep(event.payload * lease_s)

        lease_s = enough_s(url, 2 * LEASE_S)
        async with opened(url, lease=lease_s) as (outbox, heard):
            short, long = await outbox.add_many([("short", 2.5), ("long", 10)])
            workers = [outbox.worker({"short": handle}), outbox.worker({"long": handle}, max_processing="1m")]
            async with running(*workers):
                for event in (short, long):
                    found = await becomes(url, event, "COMPLETED")
                    assert (found["retry_count"], found["last_error"]) == (0, None)
            assert sorted(began) == [2.5, 10]
            assert not heard.all("event_lost")
            assert not heard.all("event_recovered")

    await asyncio.gather(on(schema_url), on(file_url))


@pytest.mark.fault("blocked-loop", "outbox")
async def test_a_handler_that_blocks_its_event_loop_keeps_its_event(url: str, opened: Opened) -> None:
    began: list[int] = []
    lease_s = enough_s(url, 2 * LEASE_S)

    async def block(event: fencehold.Claim) -> None:
        began.append(event.attempt)
        time.sleep(2.5 * lease_s)

    async with opened(url, lease=lease_s) as (outbox, _):
        event = await outbox.add("a", 1)
        async with running(outbox.worker(block)):
            assert (await becomes(url, event, "COMPLETED"))["retry_count"] == 0
    assert began == [1]


@pytest.mark.fault("blocked-loop", "outbox")
async def test_a_handler_that_blocks_beyond_max_processing_loses_its_event_to_another(url: str, opened: Opened) -> None:
    lease_s = enough_s(url, LEASE_S)
    async with opened(url, lease=lease_s, reap_every="100ms") as (outbox, _):
        event = await outbox.add("a", 1)
        with laborers(url) as start:
            times = ("--lease", f"{lease_s}s", "--seconds", f"{6 * lease_s}", "--max-processing", f"{2 * lease_s}s")
            stuck = start("block", "stuck", *times)
            await asyncio.to_thread(stuck.wait_for, "began")
            gate = Gate(is_open=True)
            async with running(outbox.worker(gate, worker_id="other", poll_every="50ms")):
                done = await becomes(url, event, "COMPLETED")
                await asyncio.to_thread(stuck.wait_for, "event_aborted")
                await asyncio.to_thread(stuck.wait_for, "event_lost", reason="refused")
        assert done["lock_token"].startswith("other/")
        assert await row(url, event) == done
        # One start; on a busy machine a claim before it may have come too late to be begun, and was a try all the same.
        assert [claim.attempt > 1 for claim in gate.entered] == [True]


@pytest.mark.fault("freeze", "outbox")
async def test_a_frozen_worker_cannot_complete_what_another_has_taken(url: str, opened: Opened) -> None:
    lease_s = enough_s(url, LEASE_S)
    async with opened(url, lease=lease_s, reap_every="100ms") as (outbox, _):
        event = await outbox.add("a", 1)
        with laborers(url) as start:
            frozen = start("wait", "frozen", "--lease", f"{lease_s}s")
            await asyncio.to_thread(frozen.wait_for, "began")
            await asyncio.to_thread(frozen.freeze, url)
            gate = Gate()
            async with running(outbox.worker(gate, worker_id="other", poll_every="50ms")):
                await gate.has(1)
                frozen.say("go")
                frozen.thaw()
                await asyncio.to_thread(frozen.wait_for, "event_lost")
                held = await row(url, event)
                assert (held["status"], held["lock_token"]) == ("PROCESSING", gate.entered[0].token)
                gate.open()
                done = await becomes(url, event, "COMPLETED")
        assert done["lock_token"] == gate.entered[0].token
        assert done["retry_count"] == 1
        assert not [told for told in frozen.events if told["event"] == "events_completed" and told["completed"]]


@pytest.mark.fault("kill", "outbox")
@pytest.mark.parametrize("death", ["exit", "kill"])
async def test_an_event_that_kills_its_process_ends_among_the_dead_letters_and_says_why(
    url: str, opened: Opened, death: str
) -> None:
    lease_s = enough_s(url, LEASE_S)
    async with opened(url, lease=lease_s, max_retries=2, reap_every="100ms") as (outbox, _):
        event = await outbox.add("a", {"poison": True})
        reaper = outbox.reaper("the-reaper")
        task = asyncio.create_task(reaper.run())
        with laborers(url) as start:
            victims = [start(death, f"victim-{n}", "--lease", f"{lease_s}s") for n in range(2)]
            found = await becomes(url, event, "DEAD_LETTER")
            assert sorted(victim.exit_code() for victim in victims) == sorted([3, 3] if death == "exit" else [-9, -9])
        assert found["retry_count"] == 2
        assert "lease expired" in found["last_error"]
        assert "victim-" in found["last_error"], "who had it"
        assert found["processed_at"] is not None
        reaper.stop()
        await task


@pytest.mark.fault("frozen-tcp", "outbox", "postgres")
@pytest.mark.limit(30)
async def test_a_worker_cut_off_from_postgres_stops_its_handler_and_another_does_the_work(
    schema_url: str, opened: Opened
) -> None:
    parts = urlsplit(schema_url)
    assert parts.hostname and parts.port  # noqa: PT018 - both
    async with opened(schema_url, lease="1s", reap_every="200ms") as (outbox, _):
        with ThreadedFaultProxy(parts.hostname, parts.port) as proxy:
            heard = Heard()
            async with fencehold.connect(through(schema_url, proxy.port), facts=heard) as store:
                cut, other = Gate(), Gate(is_open=True)
                event = await outbox.add("a", 1)
                worker = store.outbox(lease="1s").worker(cut, worker_id="cut", poll_every="50ms")
                async with running(worker):
                    await cut.has(1)
                    with cut_off(schema_url, proxy):
                        await cut.until(lambda: cut.cancelled == [event])
                        assert heard.all("worker_heartbeat_failed")
                        async with running(outbox.worker(other, worker_id="other", poll_every="50ms")):
                            done = await becomes(schema_url, event, "COMPLETED")
                    cut.open()
                    later = await outbox.add("a", 2)
                    await becomes(schema_url, later, "COMPLETED")
        assert done["lock_token"].startswith("other/")
        assert await row(schema_url, event) == done
        assert cut.done == [later], "and the one that was cut off works again by itself"


@pytest.mark.fault("slow", "outbox", "sqlite")
async def test_a_worker_kept_out_of_its_sqlite_file_stops_its_handler(file_url: str, opened: Opened) -> None:
    async with opened(file_url, lease=LEASE_S, reap_every="100ms") as (outbox, heard):
        gate = Gate()
        event = await outbox.add("a", 1)
        async with running(outbox.worker(gate, poll_every="50ms")):
            await gate.has(1)
            writer = sqlite3.connect(file_url.removeprefix("sqlite:///"), isolation_level=None)
            writer.execute("BEGIN IMMEDIATE")
            await gate.until(lambda: gate.cancelled == [event])
            await heard.once("event_lost")
            writer.execute("ROLLBACK")
            writer.close()
            gate.open()
            assert (await becomes(file_url, event, "COMPLETED"))["retry_count"] == 1


@pytest.mark.fault("reset", "outbox", "postgres")
@pytest.mark.limit(30)
async def test_a_completion_whose_answer_was_lost_is_not_done_again(schema_url: str, opened: Opened) -> None:
    parts = urlsplit(schema_url)
    assert parts.hostname and parts.port  # noqa: PT018 - both
    async with opened(schema_url) as (outbox, _):
        with ThreadedFaultProxy(parts.hostname, parts.port) as proxy:
            heard = Heard()
            async with fencehold.connect(through(schema_url, proxy.port), facts=heard) as store:
                gate, warm = Gate(), Gate(is_open=True)
                worker = store.outbox(lease="5s").worker({"a": gate, "warm up": warm}, poll_every="1h")
                async with running(worker):
                    await becomes(schema_url, await outbox.add("warm up", 0), "COMPLETED")
                    event = await outbox.add("a", 1)
                    await gate.has(1)
                    proxy.drop_answers()
                    gate.open()
                    done = await becomes(schema_url, event, "COMPLETED")
                    proxy.heal()
                    await becomes(schema_url, await outbox.add("a", 2), "COMPLETED")
        assert await row(schema_url, event) == done
        assert [claim.payload for claim in gate.entered] == [1, 2]


@pytest.mark.fault("server-restart", "outbox", "postgres")
@pytest.mark.limit(60)
async def test_two_workers_go_on_by_themselves_through_two_restarts_of_postgres(own_postgres: PostgresServer) -> None:
    url, handled = own_postgres.dsn(), set[int]()

    async def handle(event: fencehold.Claim) -> None:
        await asyncio.sleep(0.005)
        handled.add(event.payload)

    async with fencehold.connect(url) as one, fencehold.connect(url) as two:
        outboxes = [store.outbox(lease="1s", retry_base="100ms", max_retries=50) for store in (one, two)]
        await one.init()
        await outboxes[0].add_many([("a", n) for n in range(600)])
        workers = [outbox.worker(handle, concurrency=5, poll_every="50ms") for outbox in outboxes]
        async with running(*workers):
            for enough in (100, 300):

                async def is_enough(enough: int = enough) -> bool:
                    return len(handled) >= enough

                await eventually(is_enough)
                await asyncio.to_thread(own_postgres.restart)
            await all_are(url, "COMPLETED", 600, limit_s=40)
        assert handled == set(range(600))
        assert {found["last_error"] for found in await rows(url, "retry_count = 0")} <= {None}


class NeverAsked:
    async def renew(self, *_: Any) -> dict[Any, Any]:
        raise AssertionError("what is over is not renewed")


async def test_an_event_whose_time_is_over_is_lost_without_asking_the_store() -> None:
    """As after a freeze: the store would still say yes if nobody has taken the event yet, and the handler is stale."""
    clock, lost = BootClock(), asyncio.Event()
    claimed = ClaimedEvent(fencehold.Claim(1, "t", "a", "1", "w/1"), clock, clock.now_s() - 10.0, trusted_s=1.0)
    port: Any = NeverAsked()
    worker: Any = SimpleNamespace(
        claimed_events={id(claimed): claimed}, outbox=SimpleNamespace(settings=outbox_settings(lease="1s")),
        settings=worker_settings(1, max_processing="60s"), clock=clock, facts=None, _lost=lambda _: lost.set(),
    )  # fmt: skip
    renewals = EventRenewals(worker, port, worker)
    task = asyncio.create_task(renewals.run())
    async with asyncio.timeout(5):
        await lost.wait()
    assert claimed.ended_because == "deadline_passed"
    renewals.stop()
    await task
