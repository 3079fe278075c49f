"""An event is stored once, however often it is added, and is new to each consumer once."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

from fencehold.ports.events import Events, Filter
from fencehold.testing.conformance.outbox.pair import EVERYTHING, EventTests, Pair, ask, event, first_time
from fencehold.testing.conformance.suite import begun, needs
from fencehold.testing.harness import ADD_NOTE, CALL_LIMIT_S, Can, Door, Harness

AT_ONCE = 4


class EventDedupe(EventTests):
    async def test_a_known_tracking_id_is_left_alone_and_left_out(self, pair: Pair) -> None:
        first = event(payload="first", tracking_id=uuid.uuid4())
        [event_id] = await pair.add(first)
        again, other = replace(first, payload='"again"', priority=9), event(tracking_id=uuid.uuid4())
        assert await pair.client.port.add([again, other], CALL_LIMIT_S) == [other.tracking_id]
        assert await pair.client.port.add([again, other], CALL_LIMIT_S) == []
        [row] = await pair.client.admin.find(Filter(tracking_ids=(first.tracking_id,)), 9, CALL_LIMIT_S)
        assert (row.id, row.payload, row.priority) == (event_id, first.payload, 0)

    async def test_a_tracking_id_given_twice_in_one_batch_is_stored_once(self, pair: Pair) -> None:
        one = event(tracking_id=uuid.uuid4())
        assert await pair.client.port.add([one, replace(one, payload="2")], CALL_LIMIT_S) == [one.tracking_id]
        rows = await pair.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)
        assert [row.payload for row in rows] == [one.payload]

    async def test_a_known_event_far_down_in_what_is_made_as_it_is_taken_is_left_out(self, pair: Pair) -> None:
        known = event(tracking_id=uuid.uuid4())
        await pair.client.port.add([known], CALL_LIMIT_S)
        more = [event(payload=n) for n in range(250)]
        added = await pair.client.port.add(iter([*more, known]), CALL_LIMIT_S)
        assert sorted(added) == sorted(one.tracking_id for one in more)
        assert len(await pair.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)) == len(more) + 1

    async def test_a_finished_event_stays_known(self, pair: Pair) -> None:
        one = event(tracking_id=uuid.uuid4())
        await pair.add(one)
        await pair.claim(ask("a"))
        await pair.client.port.turn([row.key for row in pair.oracle.rows.values()], None, CALL_LIMIT_S)
        assert await pair.client.port.add([one], CALL_LIMIT_S) == []

    async def test_of_many_who_add_the_same_event_at_once_one_has_added_it(self, harness: Harness) -> None:
        pair = await Pair.of(harness, clients=AT_ONCE)
        ones = [event(payload=n, tracking_id=uuid.uuid4()) for n in range(20)]
        added = await asyncio.gather(*(client.port.add(ones, CALL_LIMIT_S) for client in pair.clients))
        assert sorted(tracking_id for some in added for tracking_id in some) == sorted(one.tracking_id for one in ones)
        assert len(await pair.client.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S)) == len(ones)


@needs(Can.SQL)
class EventConsumers(EventTests):
    async def test_an_event_is_met_for_the_first_time_once_by_each_consumer(
        self, harness: Harness, events: Events, door: Door
    ) -> None:
        tracking_id = str(uuid.uuid4())
        async with begun(door) as caller:
            for consumer, expected in (("mail", True), ("mail", False), ("books", True)):
                assert await first_time(events, tracking_id, consumer, caller.target) is expected
            await caller.commit()
        async with begun(door) as caller:
            assert await first_time(events, tracking_id, "mail", caller.target) is False
            assert await first_time(events, str(uuid.uuid4()), "mail", caller.target) is True
            await caller.rollback()

    async def test_a_consumer_whose_effect_was_rolled_back_meets_the_event_again(
        self, harness: Harness, events: Events, door: Door
    ) -> None:
        before, tracking_id = await harness.written(), str(uuid.uuid4())
        for is_kept in (False, True):
            async with begun(door) as caller:
                assert await first_time(events, tracking_id, "mail", caller.target) is True
                await caller.execute(ADD_NOTE.format(note=len(before)))
                await (caller.commit() if is_kept else caller.rollback())
        assert await harness.written() == [*before, len(before)]
