"""Rules 020, sections 4 to 6: how a worker ends, how much it takes on, and what it never does."""

import asyncio
import time
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

import fencehold
from fencehold.telemetry.fan_out import FanOut
from fencehold.telemetry.prometheus import PrometheusSink
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    Gate,
    Heard,
    all_are,
    becomes,
    code_of,
    enough_s,
    eventually,
    lapse,
    row,
    rows,
    running,
    statuses,
)


@pytest.mark.fault("shutdown", "outbox")
async def test_rule_020_030_a_stopped_worker_completes_what_is_in_flight_and_takes_nothing_new(
    url: str, opened: Opened
) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate()
        await outbox.add_many([("a", n) for n in range(3)])
        worker = outbox.worker(gate, concurrency=2, worker_id="w")
        task = asyncio.create_task(worker.run())
        await gate.has(2)
        worker.stop()
        assert (await heard.once("worker_stopping"))["in_flight"] == 2
        assert not task.done()
        gate.open()
        await task
        assert sorted(await statuses(url)) == ["COMPLETED", "COMPLETED", "PENDING"]
        assert len(gate.entered) == 2
        assert heard.facts[-1][0] == "worker_stopped" or heard.all("worker_stopped", worker_id="w")


async def test_rule_020_030_a_stopped_worker_leaves_no_connection_and_no_task(schema_url: str, opened: Opened) -> None:
    async def connections() -> int:
        found = await execute(schema_url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(found[0][0])

    async with opened(schema_url) as (outbox, heard):
        before, tasks = await connections(), len(asyncio.all_tasks())
        async with running(outbox.worker(Gate(is_open=True))):
            await heard.once("worker_started")
            await heard.once("reaper_run")

        async def back() -> bool:
            return await connections() <= before and len(asyncio.all_tasks()) <= tasks

        await eventually(back)


async def test_rule_020_031_a_shutdown_timeout_above_the_lease_is_refused(url: str, opened: Opened) -> None:
    async with opened(url, lease="2s") as (outbox, _):
        with pytest.raises(fencehold.ConfigurationError) as error:
            outbox.worker(Gate(), shutdown_timeout="2.001s")
        assert code_of(error) == "bad_settings"
        assert outbox.worker(Gate(), shutdown_timeout="2s").settings.shutdown_timeout_s == 2
        assert outbox.worker(Gate()).settings.shutdown_timeout_s <= 2


@pytest.mark.fault("shutdown", "outbox")
async def test_rule_020_031_past_the_timeout_handlers_are_cancelled_and_their_events_handed_back(
    url: str, opened: Opened
) -> None:
    async with opened(url, retry_base="100ms") as (outbox, _):
        gate, successor = Gate(), Gate(is_open=True)
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, shutdown_timeout="500ms")
        task = asyncio.create_task(worker.run())
        await gate.has(1)
        worker.stop()
        async with asyncio.timeout(3):
            await task
        assert gate.cancelled == [event]
        found = await row(url, event)
        assert found["status"] != "PROCESSING", "nobody has to wait for the lease to lapse"
        assert found["lock_token"] is None
        async with running(outbox.worker(successor, poll_every="50ms")):
            await becomes(url, event, "COMPLETED")


async def test_rule_020_031_a_handler_that_heeds_nothing_is_left_to_the_reaper(url: str, opened: Opened) -> None:
    end = asyncio.Event()

    async def stubborn(event: fencehold.Claim) -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    async with opened(url) as (outbox, heard):
        event = await outbox.add("a", 1)
        worker = outbox.worker(stubborn, shutdown_timeout="400ms")
        task = asyncio.create_task(worker.run())
        await heard.once("events_claimed")
        worker.stop()
        async with asyncio.timeout(3):
            await task
        assert (await row(url, event))["status"] == "PROCESSING"
        await lapse(url)
        assert [each.tracking_id for each in await outbox.reap()] == [event]
        end.set()
        await asyncio.sleep(0)
        assert (await row(url, event))["status"] == "PENDING"


async def test_rule_020_032_every_worker_has_an_id_of_its_own_in_tokens_facts_and_metrics(
    url: str, opened: Opened
) -> None:
    registry, heard = CollectorRegistry(), Heard()
    async with fencehold.connect(url, facts=FanOut(heard, PrometheusSink(registry))) as store:
        outbox = store.outbox()
        await store.init()
        gates = [Gate(), Gate()]
        workers = [outbox.worker(gate, concurrency=1) for gate in gates]
        assert workers[0].worker_id != workers[1].worker_id
        await outbox.add_many([("a", 1), ("a", 2)])
        async with running(*workers):
            await asyncio.gather(*(gate.has(1) for gate in gates))
            for gate, worker in zip(gates, workers, strict=True):
                found = await row(url, gate.entered[0].tracking_id)
                assert found["lock_token"].startswith(f"{worker.worker_id}/")
                assert heard.all("events_claimed", worker_id=worker.worker_id)
                labels = {"outbox": "outbox", "worker_id": worker.worker_id}
                assert registry.get_sample_value("worker_running", labels) == 1
                gate.open()


@pytest.mark.fault("slow", "outbox", "postgres")
async def test_rule_020_040_a_row_locked_by_somebody_else_is_skipped_and_not_waited_for(
    schema_url: str, opened: Opened
) -> None:
    async with opened(schema_url) as (outbox, _):
        first, second = await outbox.add_many([("a", 1), ("a", 2)])
        async with await psycopg.AsyncConnection.connect(schema_url) as other:
            await other.execute("SELECT 1 FROM outbox WHERE tracking_id = %s FOR UPDATE", [first])
            async with asyncio.timeout(3):
                claims = await outbox.claim(2, "w")
            assert [claim.tracking_id for claim in claims] == [second]


async def test_rule_020_040_claimers_at_once_never_get_the_same_event(url: str) -> None:
    async with fencehold.connect(url) as store:
        outboxes = [store.outbox()]
        await store.init()
        await outboxes[0].add_many([("a", n) for n in range(200)])
        async with fencehold.connect(url) as second, fencehold.connect(url) as third:
            outboxes += [second.outbox(), third.outbox()]
            claimed: list[str] = []

            async def drain(outbox: fencehold.Outbox) -> None:
                async def batch() -> bool:
                    claims = await outbox.claim(7, "w")
                    claimed.extend(claim.tracking_id for claim in claims)
                    return len(claimed) >= 200

                await eventually(batch)

            await asyncio.gather(*(drain(outbox) for outbox in outboxes))
        assert len(claimed) == len(set(claimed)) == 200


async def test_rule_020_041_no_more_than_concurrency_run_or_are_held_at_once(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate()
        await outbox.add_many([("a", n) for n in range(25)])
        worker = outbox.worker(gate, poll_every="20ms")
        assert worker.settings.concurrency == 10
        async with running(worker):
            await gate.has(10)
            assert await statuses(url) == ["PROCESSING"] * 10 + ["PENDING"] * 15
            assert worker.in_flight == 10
            gate.open()
            await all_are(url, "COMPLETED", 25)
        assert gate.most == 10
        assert all(0 < fact["claimed"] <= 10 for fact in heard.all("events_claimed"))


async def test_rule_020_041_a_worker_needs_few_connections_however_many_events_it_runs(
    schema_url: str, opened: Opened
) -> None:
    async with opened(schema_url) as (outbox, heard):
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        before = (await execute(schema_url, sql))[0][0]
        gate = Gate()
        await outbox.add_many([("a", n) for n in range(100)])
        async with running(outbox.worker(gate, concurrency=100)):
            await gate.has(100)
            await heard.once("reaper_run")
            assert (await execute(schema_url, sql))[0][0] - before <= 4
            gate.open()


async def test_rule_020_041_concurrency_has_bounds(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        bad: Any
        for bad in (0, -1, 10_001, 1.5, True, "10", None):
            with pytest.raises(fencehold.ConfigurationError) as error:
                outbox.worker(Gate(), concurrency=bad)
            assert code_of(error) == "bad_settings"


async def test_rule_020_042_polling_pauses_while_downstream_is_saturated_and_resumes(url: str, opened: Opened) -> None:
    full, asked = [True], asyncio.Event()

    def saturated() -> bool:
        asked.set()
        return full[0]

    async with opened(url) as (outbox, heard):
        gate = Gate(is_open=True)
        events = await outbox.add_many([("a", n) for n in range(3)])
        async with running(outbox.worker(gate, saturated=saturated, poll_every="20ms")):
            await heard.once("worker_saturated")
            for _ in range(3):
                asked.clear()
                await asked.wait()
            assert gate.entered == []
            assert set(await statuses(url)) == {"PENDING"}
            full[0] = False
            await all_are(url, "COMPLETED", len(events))
        assert len(heard.all("worker_saturated")) == 1


async def test_rule_020_050_the_table_itself_refuses_processing_without_a_lease(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1)
        for missing in ("locked_until = NULL, lock_token = 'x'", "locked_until = due_at, lock_token = NULL"):
            with pytest.raises(Exception, match=r"(?i)check constraint"):
                await execute(url, f"UPDATE outbox SET status = 'PROCESSING', {missing}")
        assert (await row(url, event))["status"] == "PENDING"


async def test_rule_020_050_whatever_a_handler_gets_is_leased_to_it_at_that_moment(url: str, opened: Opened) -> None:
    seen: list[bool] = []

    async def look(event: fencehold.Claim) -> None:
        found = await rows(url, f"id = {event.id} AND status = 'PROCESSING' AND lock_token = '{event.token}'")
        seen.append(len(found) == 1)

    async with opened(url) as (outbox, _), running(outbox.worker(look, concurrency=3)):
        await outbox.add_many([("a", n) for n in range(10)])
        await all_are(url, "COMPLETED", 10)
    assert seen == [True] * 10


async def test_rule_020_051_a_handler_is_aborted_after_three_leases_and_its_event_retried(
    url: str, opened: Opened
) -> None:
    lease_s = enough_s(url, 0.5)
    async with opened(url, lease=lease_s, retry_base="100ms") as (outbox, heard):
        gate = Gate()
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, poll_every="50ms")
        assert worker.settings.max_processing_s == 3 * lease_s
        async with running(worker):
            await gate.has(1)
            began_s = asyncio.get_running_loop().time()
            await gate.until(lambda: gate.cancelled == [event])
            assert 2.4 * lease_s < asyncio.get_running_loop().time() - began_s < 8 * lease_s
            await heard.once("event_aborted", tracking_id=event)
            assert "max_processing" in (await heard.once("event_failed", attempt=1))["error"]
            await gate.has(2)
            gate.open()
            assert (await becomes(url, event, "COMPLETED"))["retry_count"] == 1


async def test_rule_020_052_a_worker_that_dies_says_so_and_stops_its_handlers(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("a fault of our own")

    registry, heard = CollectorRegistry(), Heard()
    async with fencehold.connect(url, facts=FanOut(heard, PrometheusSink(registry))) as store:
        outbox = store.outbox(lease="30s")
        await store.init()
        gate = Gate()
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, worker_id="w", poll_every="20ms")
        task = asyncio.create_task(worker.run())
        await gate.has(1)
        monkeypatch.setattr(worker, "_turn", broken)
        with pytest.raises(ZeroDivisionError):
            await task
        assert "a fault of our own" in (await heard.once("worker_died", worker_id="w"))["error"]
        assert registry.get_sample_value("outbox_worker_deaths_total", {"outbox": "outbox"}) == 1
        await gate.until(lambda: gate.cancelled == [event])
        await lapse(url)
        assert [each.tracking_id for each in await outbox.reap()] == [event]


@pytest.mark.fault("cancel", "outbox")
async def test_rule_020_052_a_worker_whose_task_is_cancelled_hands_its_events_back(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        gate = Gate()
        event = await outbox.add("a", 1)
        task = asyncio.create_task(outbox.worker(gate).run())
        await gate.has(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.cancelled == [event]
        assert (await row(url, event))["status"] != "PROCESSING"
        assert heard.all("worker_stopped")


async def test_rule_020_031_a_shutdown_makes_no_dead_letter(url: str, opened: Opened) -> None:
    """Nothing is wrong with the event: its worker was told to go while it was being handled."""
    async with opened(url, max_retries=1) as (outbox, _):
        gate = Gate()
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, shutdown_timeout="300ms")
        task = asyncio.create_task(worker.run())
        await gate.has(1)
        worker.stop()
        await task
        assert (await row(url, event))["status"] in ("PENDING", "FAILED")


async def test_a_loop_that_is_blocked_past_the_shutdown_timeout_still_hands_back_what_it_called_off(
    url: str, opened: Opened
) -> None:
    """The cancel and the end of the timeout then come together; the handler must have had the time to end between."""
    async with opened(url, max_retries=1) as (outbox, heard):
        gate = Gate()
        event = await outbox.add("a", 1)
        worker = outbox.worker(gate, shutdown_timeout="1s")
        task = asyncio.create_task(worker.run())
        await gate.has(1)
        worker.stop()
        await heard.once("worker_stopping")
        time.sleep(1.2)
        await task
        assert (await row(url, event))["status"] == "PENDING"
