"""Tests that adding and consuming events in the caller's own transaction takes effect with its commit, and only then.

For each consumer an event is new once.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from fencehold.ports.events import Events, Filter
from fencehold.testing.conformance.leases.caller_fences import count
from fencehold.testing.conformance.outbox.pair import EVERYTHING, EventTests, add_in, claim, event, first_time
from fencehold.testing.conformance.suite import begun, needs, refused_with
from fencehold.testing.harness import ADD_NOTE, CALL_LIMIT_S, COUNT, OUTBOX_TABLE, Can, Door, Harness


@needs(Can.SQL)
class EventCallers(EventTests):
    async def test_an_event_is_stored_with_the_callers_change_or_not_at_all(
        self, harness: Harness, events: Events, door: Door
    ) -> None:
        expected, before = await stored(events), await count(harness)
        for is_kept in (False, True):
            made = [event(payload=door.title), event(priority=3, not_before=1.0, metadata={"a": 1})]
            async with begun(door) as caller:
                await caller.execute(COUNT)
                added = await add_in(events, caller.target, made)
                assert sorted(added) == sorted(one.tracking_id for one in made)
                await (caller.commit() if is_kept else caller.rollback())
            expected += [one.tracking_id for one in made] if is_kept else []
        assert (await stored(events), await count(harness)) == (expected, before + 1)

    async def test_an_event_may_be_the_first_thing_in_a_transaction(
        self, harness: Harness, events: Events, door: Door
    ) -> None:
        async with begun(door) as caller:
            await add_in(events, caller.target, [event()])
            await caller.execute(COUNT)
            await caller.rollback()
        assert (await stored(events), await count(harness)) == ([], 0)

    async def test_a_known_tracking_id_is_left_out_and_leaves_the_transaction_whole(
        self, harness: Harness, events: Events, door: Door
    ) -> None:
        known = event(tracking_id=uuid.uuid4())
        await events.port.add([known], CALL_LIMIT_S)
        before = await count(harness)
        async with begun(door) as caller:
            assert await add_in(events, caller.target, [known]) == []
            await caller.execute(COUNT)
            await caller.commit()
        assert await count(harness) == before + 1

    async def test_outside_a_transaction_nothing_is_written(self, harness: Harness, events: Events, door: Door) -> None:
        async with door.open(autocommit=True) as caller:
            with refused_with("add_outside_transaction"):
                await add_in(events, caller.target, [event()])
            with refused_with("add_outside_transaction"):
                await first_time(events, str(uuid.uuid4()), "mail", caller.target)
        assert await stored(events) == []
        assert await harness.sql.run(f"SELECT tracking_id FROM {OUTBOX_TABLE}_consumed") == []

    async def test_a_connection_of_another_database_is_refused_and_nothing_is_written_there(
        self, events: Events, other: Harness, door: Door
    ) -> None:
        theirs, before = await other.events(), await count(other)
        async with begun(door) as caller:
            await caller.execute(COUNT)
            with refused_with("wrong_store"):
                await add_in(events, caller.target, [event(), event()])
            with refused_with("wrong_store"):
                await first_time(events, str(uuid.uuid4()), "mail", caller.target)
            await caller.commit()
        assert (await stored(events), await stored(theirs)) == ([], [])
        assert await other.sql.run(f"SELECT tracking_id FROM {OUTBOX_TABLE}_consumed") == []
        assert await count(other) == before + 1, "what the caller wrote is the caller's"

    async def test_a_connection_of_a_database_without_an_outbox_is_refused_in_the_same_words(
        self, events: Events, other: Harness, door: Door
    ) -> None:
        async with begun(door) as caller:
            with refused_with("wrong_store"):
                await add_in(events, caller.target, [event()])

    @pytest.mark.parametrize("target", [None, "sqlite://", object(), 7], ids=repr)
    async def test_what_is_no_connection_is_refused(self, events: Events, target: Any) -> None:
        with refused_with("bad_connection"):
            await add_in(events, target, [event()])
        assert await stored(events) == []

    async def test_a_row_inserted_or_set_to_pending_by_hand_is_claimed(self, harness: Harness) -> None:
        tracking_id = str(uuid.uuid4())
        await harness.events()
        await harness.sql.run(
            f"INSERT INTO {OUTBOX_TABLE} (tracking_id, event_type, payload) "
            f"VALUES ('{tracking_id}', 'made.by.hand', '{{\"a\": 1}}')"
        )
        for _ in range(2):
            events = await harness.events()
            [one] = await claim(events.port, "ada")
            assert (one.tracking_id, one.event_type, one.payload) == (tracking_id, "made.by.hand", {"a": 1})
            assert (one.attempt, one.max_retries, one.priority) == (1, 5, 0)
            assert (await events.port.turn([one.key], None, CALL_LIMIT_S)).completed
            await harness.sql.run(f"UPDATE {OUTBOX_TABLE} SET status = 'PENDING'")


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


async def stored(events: Events) -> list[str]:
    """Return the tracking ids of the stored events, the oldest first."""
    return [row.tracking_id for row in reversed(await events.admin.find(Filter(), EVERYTHING, CALL_LIMIT_S))]
