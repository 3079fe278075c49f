"""Rules 020, section 3: there is a reaper, it recovers what lapsed, often enough, and says so."""

import asyncio
import contextlib
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import fencehold
from fencehold.runtime.outbox import reaper
from fencehold.runtime.outbox.context import OutboxAccess
from fencehold.telemetry.prometheus import PrometheusSink
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import (
    LONG_AGO,
    Gate,
    Heard,
    code_of,
    dialect,
    enough_s,
    eventually,
    lapse,
    row,
    rows,
    running,
    statuses,
    update,
)


async def runs(url: str) -> int:
    found = await execute(url, "SELECT runs FROM outbox_reaper")
    return int(found[0][0]) if found else 0


async def nothing(event: fencehold.Claim) -> None:
    return None


async def test_rule_020_020_a_worker_brings_a_reaper_that_runs_continuously(url: str, opened: Opened) -> None:
    async with opened(url, lease=enough_s(url, 0.6)) as (outbox, heard), running(outbox.worker(nothing)):
        await heard.once("reaper_run", times=3)
        assert await runs(url) >= 3


async def test_rule_020_020_a_worker_without_a_reaper_anywhere_is_refused(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard):
        event = await outbox.add("a", 1)
        gate = Gate(is_open=True)
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.worker(gate, reaper=False).run()
        assert code_of(error) == "no_reaper"
        assert gate.entered == []
        assert (await row(url, event))["status"] == "PENDING"
        assert "no_reaper" in (await heard.once("worker_died"))["error"]


async def test_rule_020_020_a_reaper_that_ran_long_ago_counts_as_none(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.reap()
        await execute(url, f"UPDATE outbox_reaper SET ran_at = {LONG_AGO[dialect(url)]}")
        with pytest.raises(fencehold.ConfigurationError) as error:
            await outbox.worker(nothing, reaper=False).run()
        assert code_of(error) == "no_reaper"


async def test_rule_020_020_a_reaper_elsewhere_is_enough(url: str, opened: Opened) -> None:
    async with opened(url, lease="2s") as (outbox, heard):
        reaper = outbox.reaper("the-reaper")
        task = asyncio.create_task(reaper.run())
        await heard.once("reaper_run")
        gate = Gate(is_open=True)
        await outbox.add("a", 1)
        async with running(outbox.worker(gate, reaper=False)):
            await gate.has(1)
        reaper.stop()
        await task


async def test_rule_020_020_one_reaper_is_active_and_another_takes_over(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []  # the connections of those that ran
    real = reaper.reap_all

    async def reap_all(port: Any, outbox: OutboxAccess, limit_s: float) -> list[fencehold.Recovered]:
        ran.append(port)
        return await real(port, outbox, limit_s)

    monkeypatch.setattr(reaper, "reap_all", reap_all)
    async with opened(url, lease=enough_s(url, 1.0)) as (outbox, heard):
        workers = [outbox.worker(nothing, worker_id=f"w{n}") for n in range(3)]
        tasks = {worker.worker_id: asyncio.create_task(worker.run()) for worker in workers}
        first = (await heard.once("leader_acquired"))["holder_id"]
        await heard.once("worker_started", times=3)
        await heard.once("reaper_run", times=3)
        leading = heard.all("leader_acquired", lease_name="outbox reaper")
        assert len(leading) == 1, "the others follow"
        assert len(set(ran)) == 1, "and do nothing"
        next(worker for worker in workers if worker.worker_id == first).stop()
        await tasks[first]
        before = len(heard.all("reaper_run"))
        second = (await heard.once("leader_acquired", times=2))["holder_id"]
        await heard.once("reaper_run", times=before + 2)
        assert second != first
        assert len(set(ran)) == 2
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks.values())


async def test_rule_020_020_a_worker_whose_reaper_only_follows_stops_as_quickly(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, heard), running(outbox.worker(nothing, worker_id="leads")):
        await heard.once("leader_acquired")
        follower = outbox.worker(nothing, worker_id="follows")
        task = asyncio.create_task(follower.run())
        await heard.once("worker_started", worker_id="follows")
        await heard.once("state_change", holder_id="follows", new="follower")
        follower.stop()
        async with asyncio.timeout(2):
            await task


async def test_rule_020_021_the_reaper_frees_what_lapsed_and_nothing_else(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        lapsed, live, done, waiting = await outbox.add_many([("a", n) for n in range(4)])
        claims = await outbox.claim(3, "w")
        await outbox.complete([claim for claim in claims if claim.tracking_id == done])
        await lapse(url, f"tracking_id = '{lapsed}'")
        before = [await row(url, event) for event in (live, done, waiting)]
        (recovered,) = await outbox.reap()
        assert (recovered.tracking_id, recovered.status) == (lapsed, fencehold.Status.PENDING)
        found = await row(url, lapsed)
        assert (found["status"], found["locked_until"], found["lock_token"]) == ("PENDING", None, None)
        assert [await row(url, event) for event in (live, done, waiting)] == before


async def test_rule_020_021_a_recovery_counts_as_a_try_and_the_last_one_is_a_dead_letter(
    url: str, opened: Opened
) -> None:
    async with opened(url, max_retries=3) as (outbox, _):
        event = await outbox.add("a", 1)
        seen: list[tuple[str, int]] = []
        for _ in range(3):
            (claim,) = await eventually(lambda: outbox.claim(1, "w"))
            assert claim.attempt == len(seen) + 1
            await lapse(url)
            (recovered,) = await outbox.reap()
            seen.append((recovered.status.value, recovered.retry_count))
        assert seen == [("PENDING", 1), ("PENDING", 2), ("DEAD_LETTER", 3)]
        found = await row(url, event)
        assert "lease expired" in found["last_error"]
        assert claim.token in found["last_error"]
        assert found["processed_at"] is not None
        assert await outbox.claim(1, "w") == []


async def test_rule_020_021_more_than_one_batch_is_recovered_in_one_run(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", n) for n in range(1050)])
        claims = await outbox.claim(1050, "w")
        assert len(claims) == 1050
        await lapse(url)
        assert len(await outbox.reap()) == 1050
        assert set(await statuses(url)) == {"PENDING"}


async def test_rule_020_022_the_reaper_runs_every_10_s_and_more_often_than_a_lease_lasts(
    url: str, opened: Opened
) -> None:
    async with opened(url) as (outbox, _):
        assert outbox.settings.reap_every_s == 10
    async with opened(url, reap_every="5s") as (outbox, _):
        assert outbox.settings.reap_every_s == 5
    async with opened(url, lease="60s", reap_every="30s") as (outbox, _):
        assert outbox.settings.reap_every_s == 30
    for bad in ("30s", "31s"):
        with pytest.raises(fencehold.ConfigurationError, match="reap_every"):
            async with opened(url, reap_every=bad):
                pass
    async with opened(url, lease="60s", reap_every="30s") as (outbox, _):
        outbox.configure(lease="15s")
        assert outbox.settings.reap_every_s < 15


async def test_rule_020_022_runs_are_reap_every_apart(url: str, opened: Opened) -> None:
    async with opened(url, lease="2s", reap_every="200ms") as (outbox, heard), running(outbox.worker(nothing)):
        await heard.once("reaper_run")
        began_s = asyncio.get_running_loop().time()
        await heard.once("reaper_run", times=4)
        assert 0.5 < asyncio.get_running_loop().time() - began_s < 3


async def test_rule_020_023_the_reaper_says_how_many_it_recovered_and_how_long_they_were_stuck(
    url: str, opened: Opened
) -> None:
    registry = CollectorRegistry()
    sink, heard = PrometheusSink(registry), Heard()

    class Both:
        def fact(self, event: str, **fields: Any) -> None:
            sink.fact(event, **fields)
            heard.fact(event, **fields)

    async with fencehold.connect(url, facts=Both()) as store:
        outbox = store.outbox()
        await store.init()
        await outbox.add_many([("a", n) for n in range(2)])
        await outbox.claim(2, "w")
        await lapse(url)
        await outbox.reap()
        await outbox.reap()
    labels = {"outbox": "outbox"}
    assert registry.get_sample_value("reaper_recovered_count_total", labels) == 2
    assert registry.get_sample_value("reaper_runs_total", labels) == 2
    assert registry.get_sample_value("reaper_stale_duration_seconds_count", labels) == 2
    assert (registry.get_sample_value("reaper_stale_duration_seconds_sum", labels) or 0) >= 2, "a second each"
    assert [fact["recovered"] for fact in heard.all("reaper_run")] == [2, 0]
    assert all(fact["stale_s"] >= 1 for fact in heard.all("event_recovered"))


async def test_the_reaper_goes_on_after_the_store_failed_it(
    url: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.postgres.outbox.events import PostgresEventPort
    from fencehold.backends.sqlite.outbox.events import SqliteEventPort
    from fencehold.backends.sqlserver.outbox.events import SqlServerEventPort

    async def unreachable(*_: Any) -> Any:
        raise fencehold.Unavailable("cut off", code="unreachable")

    async with opened(url, lease=enough_s(url, 0.6)) as (outbox, heard):
        event = await outbox.add("a", 1)
        await outbox.claim(1, "dead")
        with contextlib.ExitStack() as stack:
            broken = stack.enter_context(monkeypatch.context())
            for port in (PostgresEventPort, SqliteEventPort, SqlServerEventPort):
                broken.setattr(port, "reap", unreachable)
            async with running(outbox.worker(nothing)):
                await heard.once("reaper_failed", times=2)
                stack.close()
                await heard.once("event_recovered", tracking_id=event)


async def test_events_of_a_frozen_reaper_are_recovered_by_hand_too(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        await outbox.add("a", 1)
        await outbox.claim(1, "w")
        await update(url, "retry_count = 4")
        await lapse(url)
        (recovered,) = await outbox.reap()
        assert recovered.status is fencehold.Status.DEAD_LETTER
        assert [found["retry_count"] for found in await rows(url)] == [5]
