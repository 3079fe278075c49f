"""Which event comes next: the more urgent, the older, not before its time, and in order where that is asked for."""

import asyncio
import datetime as dt

import psycopg
import pytest

import fencehold
from tests.across_packages.processes import execute
from tests.fencehold.runtime.outbox.conftest import Opened
from tests.fencehold.runtime.outbox.scene import Gate, all_are, becomes, eventually, lapse, row, running


async def test_higher_priority_is_handled_sooner_and_of_the_same_the_older(url: str, opened: Opened) -> None:
    async with opened(url) as (outbox, _):
        gate = Gate(is_open=True)
        for n, priority in enumerate([0, 5, -7, 5, 32_767, 0, -32_767]):
            await outbox.add("a", n, priority=priority)
        async with running(outbox.worker(gate, concurrency=1)):
            await all_are(url, "COMPLETED", 7)
        assert [claim.payload for claim in gate.entered] == [4, 1, 3, 0, 5, 2, 6]


async def test_a_new_urgent_event_goes_before_older_ones(url: str, opened: Opened) -> None:
    order: list[str] = []
    first, go = asyncio.Event(), asyncio.Event()

    async def handle(event: fencehold.Claim) -> None:
        order.append(event.payload)
        first.set()
        await go.wait()

    async with opened(url) as (outbox, _):
        await outbox.add_many([("a", "old 1"), ("a", "old 2"), ("a", "old 3")])
        async with running(outbox.worker(handle, concurrency=1, poll_every="1h")):
            await first.wait()
            await outbox.add("a", "urgent", priority=9)
            await asyncio.sleep(0.1)  # for the hint; without it the event is only later
            go.set()
            await all_are(url, "COMPLETED", 4)
    assert order.index("urgent") == 1


async def test_an_event_is_not_handled_before_its_time_and_soon_after(url: str, opened: Opened) -> None:
    loop = asyncio.get_running_loop()
    at_s: dict[str, float] = {}

    async def handle(event: fencehold.Claim) -> None:
        at_s[event.payload] = loop.time()

    async with opened(url) as (outbox, _):
        began_s = loop.time()
        await outbox.add("a", "delay", not_before="600ms")
        await outbox.add("a", "time", not_before=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.6))
        await outbox.add("a", "past", not_before=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
        await outbox.add("a", "now")
        async with running(outbox.worker(handle, poll_every="50ms")):
            await all_are(url, "COMPLETED", 4)
    assert 0.58 < at_s["delay"] - began_s < 5
    assert 0.58 < at_s["time"] - began_s < 5
    assert max(at_s["now"], at_s["past"]) < min(at_s["delay"], at_s["time"])


async def test_a_time_in_another_zone_is_the_same_instant(url: str, opened: Opened) -> None:
    zone = dt.timezone(dt.timedelta(hours=-9, minutes=-30))
    async with opened(url) as (outbox, _):
        event = await outbox.add("a", 1, not_before=dt.datetime.now(zone) + dt.timedelta(hours=1))
        (found,) = await outbox.find()
        assert found.tracking_id == event
        assert 3590 < found.waits_s <= 3601
        assert await outbox.claim(1, "w") == []


class InOrder:
    """Notes for every aggregate what ran, and whether two of one ever ran at once."""

    def __init__(self) -> None:
        self.ran: dict[str | None, list[int]] = {}
        self.inside: dict[str | None, int] = {}
        self.most: dict[str | None, int] = {}

    async def __call__(self, event: fencehold.Claim) -> None:
        key = event.aggregate_id
        self.ran.setdefault(key, []).append(event.payload)
        self.inside[key] = self.inside.get(key, 0) + 1
        self.most[key] = max(self.most.get(key, 0), self.inside[key])
        try:
            await asyncio.sleep(0.005)
        finally:
            self.inside[key] -= 1


async def test_in_order_each_aggregate_has_one_in_flight_and_keeps_its_order_over_two_workers(
    url: str, opened: Opened
) -> None:
    handle = InOrder()
    async with opened(url, ordered=True) as (outbox, _):
        events = [{"event_type": "a", "payload": n, "aggregate_id": f"o-{n % 3}"} for n in range(24)]
        await outbox.add_many(events)
        workers = [outbox.worker(handle, concurrency=4, poll_every="20ms") for _ in range(2)]
        async with running(*workers):
            await all_are(url, "COMPLETED", 24)
    assert handle.most == {"o-0": 1, "o-1": 1, "o-2": 1}
    assert handle.ran == {f"o-{k}": list(range(k, 24, 3)) for k in range(3)}


async def test_in_order_a_slow_aggregate_does_not_hold_up_the_others(url: str, opened: Opened) -> None:
    release = asyncio.Event()

    async def handle(event: fencehold.Claim) -> None:
        if event.aggregate_id == "slow":
            await release.wait()

    async with opened(url, ordered=True) as (outbox, _):
        await outbox.add_many([{"event_type": "a", "payload": n, "aggregate_id": "slow"} for n in range(3)])
        others = [await outbox.add("a", n, aggregate_id=key) for n, key in enumerate(["x", "x", "y", None, None])]
        async with running(outbox.worker(handle, poll_every="20ms")):
            for event in others:
                await becomes(url, event, "COMPLETED")
            held = await execute(url, "SELECT count(*) FROM outbox WHERE status = 'PROCESSING'")
            assert held[0][0] == 1
            release.set()
            await all_are(url, "COMPLETED", 8)


async def test_in_order_a_failed_event_holds_back_its_aggregate_until_it_is_a_dead_letter(
    url: str, opened: Opened
) -> None:
    ran: list[int] = []

    async def handle(event: fencehold.Claim) -> None:
        ran.append(event.payload)
        if event.payload == 0:
            raise RuntimeError("no")

    async with opened(url, ordered=True, max_retries=3, retry_base="100ms", retry_cap="100ms") as (outbox, _):
        first = await outbox.add("a", 0, aggregate_id="o")
        second = await outbox.add("a", 1, aggregate_id="o")
        async with running(outbox.worker(handle, poll_every="20ms")):
            await becomes(url, second, "COMPLETED")
        assert (await row(url, first))["status"] == "DEAD_LETTER"
    assert ran == [0, 0, 0, 1]


async def test_in_order_the_same_id_of_two_types_is_two_aggregates(url: str, opened: Opened) -> None:
    async with opened(url, ordered=True) as (outbox, _):
        for kind in ("order", "customer", None):
            await outbox.add("a", kind, aggregate_id="7", aggregate_type=kind)
            await outbox.add("a", kind, aggregate_id="7", aggregate_type=kind)
        assert {claim.payload for claim in await outbox.claim(10, "w")} == {"order", "customer", None}


async def test_in_order_a_recovered_event_is_first_again(url: str, opened: Opened) -> None:
    async with opened(url, ordered=True) as (outbox, _):
        first = await outbox.add("a", 0, aggregate_id="o")
        await outbox.add("a", 1, aggregate_id="o")
        assert [claim.tracking_id for claim in await outbox.claim(5, "w")] == [first]
        await lapse(url)
        assert await outbox.claim(5, "w") == [], "the second waits, though the first's holder is gone"
        await outbox.reap()
        assert [claim.tracking_id for claim in await eventually(lambda: outbox.claim(5, "w"))] == [first]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_in_order_holds_whatever_the_default_isolation_is(
    schema_url: str, opened: Opened, isolation: str
) -> None:
    handle = InOrder()
    strict = schema_url + f"%20-cdefault_transaction_isolation%3D{isolation.replace(' ', '%5C%20')}"
    async with opened(strict, ordered=True) as (outbox, _):
        await outbox.add_many([{"event_type": "a", "payload": n, "aggregate_id": "o"} for n in range(12)])
        async with running(*(outbox.worker(handle, concurrency=2, poll_every="10ms") for _ in range(3))):
            await all_are(strict, "COMPLETED", 12)
    assert handle.most == {"o": 1}
    assert sorted(set(handle.ran["o"])) == list(range(12))


async def test_in_order_an_older_event_that_comes_back_waits_for_the_one_in_flight(url: str, opened: Opened) -> None:
    """A dead letter let the next one go first; redriven meanwhile, it must not run beside it."""
    async with opened(url, ordered=True) as (outbox, _):
        first = await outbox.add("a", 0, aggregate_id="o")
        second = await outbox.add("a", 1, aggregate_id="o")
        (claim,) = await outbox.claim(5, "w")
        await outbox.fail(claim, "no", retry=False)
        (held,) = await outbox.claim(5, "w")
        assert held.tracking_id == second
        assert await outbox.redrive("a", "mended") == [first]
        assert await outbox.claim(5, "w") == []
        await outbox.complete(held)
        assert [claim.tracking_id for claim in await outbox.claim(5, "w")] == [first]


async def test_in_order_claims_take_turns_on_postgres(schema_url: str, opened: Opened) -> None:
    """Two at once could not see each other's: one might take the older event while the other takes the younger."""

    async def waits() -> bool:
        sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return bool((await execute(schema_url, sql))[0][0])

    async with opened(schema_url, ordered=True) as (outbox, _):
        await outbox.add("a", 0, aggregate_id="o")
        async with await psycopg.AsyncConnection.connect(schema_url) as other:
            await other.execute("SELECT pg_advisory_xact_lock(1718511459, hashtext('outbox'))")
            task = asyncio.create_task(outbox.claim(5, "w"))
            await eventually(waits)
            await other.rollback()
            assert len(await task) == 1
