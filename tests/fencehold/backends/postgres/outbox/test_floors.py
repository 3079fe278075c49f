"""Claims that begin where the last one ended, and the sweep that finds what lies before."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

import fencehold
from fencehold.backends.postgres.backend import PostgresBackend
from fencehold.backends.postgres.outbox.events import PostgresEvents
from fencehold.model.outbox.new_events import new_event
from fencehold.model.outbox.settings import outbox_settings
from fencehold.ports.events import Claim, ClaimAsk
from fencehold.testing.conformance.outbox.pair import add_in

LIMIT_S = 10.0
SETTINGS = outbox_settings()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresEvents]:
    events = PostgresBackend(url, "fencehold_leases").events("outbox")
    await events.schema.init(LIMIT_S)
    yield events
    await events.close()


async def add(events: PostgresEvents, *kinds: str, priority: int = 0) -> None:
    await events.port.add([new_event(SETTINGS, kind, {}, priority=priority) for kind in kinds], LIMIT_S)


async def claim(events: PostgresEvents, limit: int, *, sweep: bool) -> list[Claim]:
    ask = ClaimAsk(limit, f"w/{id(object())}", 30.0, may_miss=not sweep)
    if not sweep:
        events.port._sweeps._rests_until_s = math.inf
    return (await events.port.turn([], ask, LIMIT_S)).claims


def types(claims: list[Claim]) -> list[str]:
    return [claim.event_type for claim in claims]


async def test_claims_without_a_sweep_go_on_where_the_last_ended(postgres_url: str) -> None:
    async with opened(postgres_url) as events:
        await add(events, "a", "b", "c", "d")
        assert types(await claim(events, 2, sweep=False)) == ["a", "b"]
        assert types(await claim(events, 5, sweep=False)) == ["c", "d"]
        await add(events, "e")
        assert types(await claim(events, 5, sweep=False)) == ["e"]


async def test_an_event_of_a_transaction_that_ended_late_is_found_by_the_sweep(postgres_url: str) -> None:
    async with opened(postgres_url) as events:
        async with await psycopg.AsyncConnection.connect(postgres_url) as slow:
            await add_in(events, slow, [new_event(SETTINGS, "late", {})])
            await add(events, "early")
            assert types(await claim(events, 5, sweep=False)) == ["early"]
            await slow.commit()
        assert types(await claim(events, 5, sweep=False)) == []
        assert types(await claim(events, 5, sweep=True)) == ["late"]


async def test_a_retried_event_lies_ahead_and_needs_no_sweep(postgres_url: str) -> None:
    async with opened(postgres_url) as events:
        await add(events, "a", "b")
        first, second = await claim(events, 2, sweep=False)
        await events.port.release([first.key], LIMIT_S)
        assert types(await claim(events, 2, sweep=False)) == ["a"]
        await events.port.turn([second.key], None, LIMIT_S)


async def test_after_a_sweep_every_priority_is_known_and_the_highest_comes_first(postgres_url: str) -> None:
    async with opened(postgres_url) as events:
        for priority, kind in ((0, "none"), (-3, "low"), (7, "high"), (1, "some")):
            await add(events, f"{kind} 1", f"{kind} 2", priority=priority)
        assert types(await claim(events, 1, sweep=True)) == ["high 1"]
        assert types(await claim(events, 4, sweep=False)) == ["high 2", "some 1", "some 2", "none 1"]
        assert types(await claim(events, 9, sweep=False)) == ["none 2", "low 1", "low 2"]


async def test_a_hint_makes_a_new_priority_known_at_once(postgres_url: str) -> None:
    async with opened(postgres_url) as events:
        heard = asyncio.Event()
        events.hints.on_hint(lambda *_: heard.set())
        assert await events.hints.listen(LIMIT_S)
        await add(events, "first")
        assert types(await claim(events, 1, sweep=True)) == ["first"]
        async with fencehold.connect(postgres_url) as store:
            await store.outbox("outbox").add("urgent", {}, priority=9)
            heard.clear()
            await store.outbox("outbox").add("ordinary", {})
            await asyncio.wait_for(heard.wait(), LIMIT_S)
        assert types(await claim(events, 5, sweep=False)) == ["urgent", "ordinary"]


async def test_one_call_of_add_sends_at_most_one_notification(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        outbox = store.outbox("outbox")
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as listener:
            await listener.execute('LISTEN "outbox"')
            await outbox.add("one", {})
            await outbox.add_many([("few", {})] * 10)
            await outbox.add_many([("many", {})] * 500)
            await outbox.add_many([{"event_type": "mixed", "payload": n, "priority": n % 3} for n in range(9)])
            heard = [notify.payload async for notify in listener.notifies(timeout=LIMIT_S, stop_after=4)]
            assert heard == ["added 0", "added 0", "added 0", "added 0,1,2"]
            assert [n async for n in listener.notifies(timeout=0.1)] == []


@pytest.mark.fault("pgbouncer-transaction", "outbox")
@pytest.mark.needs("pgbouncer")
async def test_a_worker_behind_pgbouncer_in_transaction_mode_finds_events_by_polling(
    own_postgres: object, own_pgbouncer: object
) -> None:
    bouncer = own_pgbouncer(own_postgres, "transaction", pool_size=2)  # type: ignore[operator]
    url = f"postgresql://postgres@127.0.0.1:{bouncer.port}/postgres"
    async with fencehold.connect(url) as store:
        await store.init()
        outbox, handled = store.outbox("outbox", lease="5s"), asyncio.Event()

        async def handle(event: Claim) -> None:
            handled.set()
            worker.stop()

        worker = outbox.worker(handle, poll_every="50ms")
        run = asyncio.create_task(worker.run())
        await outbox.add("a", {})
        await asyncio.wait_for(run, 30)
        assert handled.is_set()
        assert (await outbox.stats()).completed == 1
