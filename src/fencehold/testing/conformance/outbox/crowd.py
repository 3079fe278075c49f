"""Many claimers at once, with exact totals: no event is claimed twice, left out, or completed twice."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter

from fencehold.model.outbox.new_events import NewEvent
from fencehold.ports.events import ClaimKey, Events, Failure
from fencehold.testing.conformance.outbox.drain import Order, drain
from fencehold.testing.conformance.outbox.pair import EventTests, ask, event
from fencehold.testing.conformance.processes import told_by_processes
from fencehold.testing.conformance.suite import needs, proves
from fencehold.testing.harness import CALL_LIMIT_S, OUTBOX_TABLE, Can, Harness

CLAIMERS = 8
EVENTS = 240
AGGREGATES = 6
PROCESSES = 2
CLAIMERS_PER_PROCESS = 3


class EventCrowd(EventTests):
    @proves("RULE-020-040")
    async def test_of_many_claimers_each_event_goes_to_exactly_one(self, harness: Harness) -> None:
        events = await filled(harness, [event(payload={"n": n}) for n in range(EVENTS)])
        claimed = await crowd(harness, Order())
        assert Counter(claimed) == Counter(range(EVENTS))
        seen = await events.admin.stats(CALL_LIMIT_S)
        assert (seen.completed, seen.pending + seen.processing + seen.failed + seen.dead_letter) == (EVENTS, 0)

    async def test_a_failed_try_and_a_release_give_each_event_back_exactly_once(self, harness: Harness) -> None:
        """Every third fails its first try, every fourth is given back once: each total is known beforehand."""
        await filled(harness, [event(payload={"n": n}) for n in range(EVENTS)])
        claimed = Counter(await crowd(harness, Order(fail_every=3, release_every=4)))
        assert claimed == Counter({n: 1 + (n % 3 == 0) + (n % 4 == 0) for n in range(EVENTS)})

    async def test_in_order_each_aggregate_is_worked_through_one_by_one(self, harness: Harness) -> None:
        count = EVENTS // 4
        made = [event(payload={"n": n}, aggregate_id=str(n % AGGREGATES)) for n in range(count)]
        await filled(harness, made)
        claimed = await crowd(harness, Order(in_order=True))
        assert sorted(claimed) == list(range(count))
        for aggregate in range(AGGREGATES):
            mine = [n for n in claimed if n % AGGREGATES == aggregate]
            assert mine == sorted(mine), "an event was claimed before the one it follows was finished"

    async def test_of_many_completions_and_failures_at_once_one_counts(self, harness: Harness) -> None:
        await harness.shift_clock(dt.timedelta())
        clients = [await harness.events() for _ in range(4)]
        await clients[0].port.add([event()], CALL_LIMIT_S)
        [claim] = (await clients[0].port.turn([], ask("a"), CALL_LIMIT_S)).claims
        failure = Failure(ClaimKey(claim.id, "a", claim.tracking_id), "no", 0.0)
        turns, failures = await asyncio.gather(
            asyncio.gather(*(client.port.turn([claim.key], None, CALL_LIMIT_S) for client in clients)),
            asyncio.gather(*(client.port.fail([failure], CALL_LIMIT_S) for client in clients)),
        )
        assert sum(len(turn.completed) for turn in turns) + sum(map(len, failures)) == 1


async def filled(harness: Harness, made: list[NewEvent]) -> Events:
    await harness.shift_clock(dt.timedelta())
    events = await harness.events()
    assert len(await events.port.add(made, CALL_LIMIT_S)) == len(made)
    return events


async def crowd(harness: Harness, order: Order) -> list[int]:
    """Run each claimer on a thread and event loop of its own; return the events' numbers in the order of the claims."""
    claimed: list[int] = []

    async def work(who: str) -> None:
        events = harness.make().events(OUTBOX_TABLE)
        try:
            await drain(events, order, who, claimed.append)
        finally:
            await events.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(f"claimer {n}")) for n in range(CLAIMERS)))
    return claimed


@needs(Can.PROCESSES)
class EventProcessCrowd(EventTests):
    """Real processes on one outbox."""

    @proves("RULE-020-040")
    async def test_processes_share_an_outbox_and_no_event_is_claimed_twice(self, harness: Harness) -> None:
        events = await filled(harness, [event(payload={"n": n}) for n in range(EVENTS)])
        order = {"table": OUTBOX_TABLE, "clients": CLAIMERS_PER_PROCESS, "fail_every": 3}
        told = await told_by_processes(harness, "outbox.drain:PART", PROCESSES, order)
        assert Counter(n for line in told for n in line) == Counter({n: 1 + (n % 3 == 0) for n in range(EVENTS)})
        assert (await events.admin.stats(CALL_LIMIT_S)).completed == EVENTS
