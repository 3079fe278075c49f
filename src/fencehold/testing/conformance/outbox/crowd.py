"""Tests with many claimers at once, with exact totals: no event is claimed twice, left out, or completed twice."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fencehold.model.outbox.new_events import NewEvent
from fencehold.ports.backend import Backend, events_of
from fencehold.ports.events import Claim, ClaimAsk, ClaimKey, Events, Failure
from fencehold.testing.conformance.outbox.pair import LEASE_S, EventTests, ask, event
from fencehold.testing.conformance.processes import Order as OrderOfProcess
from fencehold.testing.conformance.processes import Part, told_by_processes
from fencehold.testing.conformance.suite import needs, proves
from fencehold.testing.harness import CALL_LIMIT_S, OUTBOX_TABLE, Can, Harness

CLAIMERS = 8
EVENTS = 240
AGGREGATES = 6
PROCESSES = 2
CLAIMERS_PER_PROCESS = 3
BATCH = 7
PAUSE_S = 0.005


class EventCrowd(EventTests):
    @proves("RULE-020-040")
    async def test_of_many_claimers_each_event_goes_to_exactly_one(self, harness: Harness) -> None:
        events = await filled(harness, [event(payload={"n": n}) for n in range(EVENTS)])
        claimed = await crowd(harness, Order())
        assert Counter(claimed) == Counter(range(EVENTS))
        seen = await events.admin.stats(CALL_LIMIT_S)
        assert (seen.completed, seen.pending + seen.processing + seen.failed + seen.dead_letter) == (EVENTS, 0)

    async def test_a_failed_try_and_a_release_give_each_event_back_exactly_once(self, harness: Harness) -> None:
        """Every third event fails its first try, every fourth is given back once: each total is known beforehand."""
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
        events = events_of(harness.make(), OUTBOX_TABLE)
        try:
            await drain(events, order, who, claimed.append)
        finally:
            await events.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(f"claimer {n}")) for n in range(CLAIMERS)))
    return claimed


@needs(Can.PROCESSES)
class EventProcessCrowd(EventTests):
    """Tests in which real processes claim the events of one outbox."""

    @proves("RULE-020-040")
    async def test_processes_share_an_outbox_and_no_event_is_claimed_twice(self, harness: Harness) -> None:
        events = await filled(harness, [event(payload={"n": n}) for n in range(EVENTS)])
        order = {"table": OUTBOX_TABLE, "clients": CLAIMERS_PER_PROCESS, "fail_every": 3}
        told = await told_by_processes(harness, "outbox.crowd:PART", PROCESSES, order)
        assert Counter(n for line in told for n in line) == Counter({n: 1 + (n % 3 == 0) for n in range(EVENTS)})
        assert (await events.admin.stats(CALL_LIMIT_S)).completed == EVENTS


# One claimer, which may be in a process of its own: it claims, completes, fails and gives back until all is done


@dataclass(frozen=True)
class Order:
    """What claimers do besides completing: every n-th event fails its first try, or is given back once.

    `fail_every` and `release_every` are that n; None: no event.
    """

    fail_every: int | None = None
    release_every: int | None = None
    in_order: bool = False
    released: set[int] = field(default_factory=set)

    def is_to_release(self, claim: Claim) -> bool:
        return is_nth(claim, self.release_every) and claim.id not in self.released

    def is_to_fail(self, claim: Claim) -> bool:
        return is_nth(claim, self.fail_every) and claim.attempt == 1


def is_nth(claim: Claim, every: int | None) -> bool:
    return every is not None and claim.payload["n"] % every == 0


async def drain(events: Events, order: Order, who: str, note: Callable[[int], None]) -> None:
    """Claim and finish events until every event is finished. Call `note` with the number of each claimed event."""
    finished: list[ClaimKey] = []
    turns = 0
    while True:
        turns += 1
        ask = ClaimAsk(BATCH, f"{who}, turn {turns}", LEASE_S, in_order=order.in_order)
        turn = await events.port.turn(finished, ask, CALL_LIMIT_S)
        assert len(turn.completed) == len(finished), f"{who} lost an event it held"
        for claim in turn.claims:
            note(claim.payload["n"])
        finished = await settled(events, order, turn.claims)
        if not turn.claims:
            seen = await events.admin.stats(CALL_LIMIT_S)
            if seen.pending + seen.processing + seen.failed == 0:
                return
            await asyncio.sleep(PAUSE_S)  # an event that another claimer holds may become free again


async def settled(events: Events, order: Order, claims: list[Claim]) -> list[ClaimKey]:
    """Fail or give back the claims that the order selects; return the keys of the other claims, to be completed."""
    back = [claim.key for claim in claims if order.is_to_release(claim)]
    failed = [claim.key for claim in claims if order.is_to_fail(claim) and claim.key not in back]
    if back:
        order.released.update(key.id for key in back)
        assert len(await events.port.release(back, CALL_LIMIT_S)) == len(back)
    if failed:
        failures = [Failure(key, "the first try", 0.0) for key in failed]
        assert len(await events.port.fail(failures, CALL_LIMIT_S)) == len(failed)
    return [claim.key for claim in claims if claim.key not in back and claim.key not in failed]


async def connected(backend: Backend, order: OrderOfProcess) -> Events:
    events = events_of(backend, order["table"])
    await events.admin.stats(CALL_LIMIT_S)
    return events


async def work(events: Events, order: OrderOfProcess, who: str) -> list[int]:
    claimed: list[int] = []
    await drain(events, Order(fail_every=order["fail_every"]), who, claimed.append)
    return claimed


PART = Part(connected, work, lambda events: events.close())
