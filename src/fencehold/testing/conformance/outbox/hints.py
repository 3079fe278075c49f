"""A client that listens gets a hint (a message that there may be work) soon after an event is added.

It gets the hint whichever client added the event, and on whatever kind of connection.
"""

from __future__ import annotations

import asyncio

from fencehold.ports.backend import events_of
from fencehold.ports.events import Events
from fencehold.testing.conformance.outbox.pair import EventTests, add_in, claim, event
from fencehold.testing.conformance.suite import begun, needs
from fencehold.testing.harness import CALL_LIMIT_S, OUTBOX_TABLE, Can, Door, Harness


async def hearing(events: Events) -> asyncio.Event:
    heard = asyncio.Event()
    events.hints.on_hint(lambda *_: heard.set())
    assert await events.hints.listen(CALL_LIMIT_S) is True
    return heard


async def once(heard: asyncio.Event) -> None:
    async with asyncio.timeout(CALL_LIMIT_S):
        await heard.wait()
    heard.clear()


@needs(Can.EVENT_HINTS)
class EventHintsHeard(EventTests):
    async def test_an_added_event_is_heard_of_by_others_and_by_oneself(self, one: Events, two: Events) -> None:
        heard_by = [await hearing(one), await hearing(two)]
        for events in (one, two):
            await events.port.add([event()], CALL_LIMIT_S)
            for heard in heard_by:
                await once(heard)

    async def test_an_event_added_on_another_thread_is_heard_of(self, harness: Harness) -> None:
        heard = await hearing(await harness.events())

        async def add() -> None:
            other = events_of(harness.make(), OUTBOX_TABLE)
            await other.port.add([event()], CALL_LIMIT_S)
            await other.close()

        await asyncio.to_thread(asyncio.run, add())
        await once(heard)

    async def test_a_client_that_listens_still_answers(self, events: Events) -> None:
        heard = await hearing(events)
        for turn in range(5):
            await events.port.add([event()], CALL_LIMIT_S)
            await once(heard)
            assert len(await claim(events.port, f"turn {turn}")) == 1

    async def test_whoever_has_left_is_told_nothing(self, one: Events, two: Events) -> None:
        heard, gone = await hearing(one), await hearing(two)
        await two.close()
        await one.port.add([event()], CALL_LIMIT_S)
        await once(heard)
        assert not gone.is_set()


@needs(Can.EVENT_HINTS, Can.SQL)
class EventHintsOfCallers(EventTests):
    async def test_an_event_in_a_callers_transaction_is_heard_of_once_that_is_committed(
        self, harness: Harness, one: Events, two: Events, door: Door
    ) -> None:
        heard = await hearing(two)
        async with begun(door) as caller:
            await add_in(one, caller.target, [event()])
            assert not heard.is_set()
            await caller.commit()
        await once(heard)
