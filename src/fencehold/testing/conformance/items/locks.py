"""A verb that waited for a row lock decides by the row as it is after the wait, not by an earlier state of the row.

The wait has a limit.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from fencehold.model.errors import Unavailable
from fencehold.model.items.rules import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.items import ItemStore, NewItem
from fencehold.testing.conformance.items.pair import ItemTests, items_at_start, refused, row
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START, Supply, needs
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_KIND, ITEM_TABLE, Caller, Can, Harness

T = TypeVar("T")

TOUCH = f"UPDATE {ITEM_TABLE} SET document = document WHERE id = 'deal'"
HAND_OVER = f"UPDATE {ITEM_TABLE} SET holder_id = 'bob', token = token + 1 WHERE id = 'deal'"
PUT = (
    f"INSERT INTO {ITEM_TABLE} (kind, id, state, state_timestamp, document) "
    f"VALUES ('{ITEM_KIND}', 'deal', 'NEW', '2031-05-17 12:00:00', '{{}}')"
)
GONE = f"DELETE FROM {ITEM_TABLE} WHERE id = 'deal'"
IN_VAIN_S = 2.0  # long enough for a busy server to answer in time


async def held(harness: Harness) -> ItemKey:
    """Put the item "deal" at START, let ada acquire it by a client of its own, and return the key of her lease."""
    items = await items_at_start(harness)
    row(await items.port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S))
    return await held_again(items)


@needs(Can.SQL, Can.ROW_LOCKS)
class ItemLocks(ItemTests):
    supplies: ClassVar[Mapping[str, Supply]] = {"items": items_at_start, "key": held}

    async def test_a_write_that_waited_past_its_lease_is_refused(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        calls = (lambda: items.port.save(key, "SENT", None, CALL_LIMIT_S), lambda: items.port.delete(key, CALL_LIMIT_S))
        for call in calls:
            await harness.set_clock(START)
            assert refused(await waited(harness, call(), at=START + LEASE)).reason == LAPSED
        assert (await items.port.get(["deal"], CALL_LIMIT_S))["deal"].state == "NEW"

    async def test_a_renewal_that_waited_past_its_lease_does_not_revive_it(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        async with locked(harness) as other:
            waiting = asyncio.create_task(items.leases.renew([key], LEASE_S, CALL_LIMIT_S))
            await harness.set_clock(START + LEASE)
            await other.commit()
            assert await waiting == {}

    async def test_a_renewal_is_not_lost_to_a_row_that_is_locked_for_a_moment(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        row(await items.port.put(NewItem("other", "NEW", "{}", "ada"), CALL_LIMIT_S))
        free = row(await items.leases.acquire("other", "ada", LEASE_S, CALL_LIMIT_S)).key
        async with locked(harness) as other:
            waiting = asyncio.create_task(items.leases.renew([key, free], 2 * LEASE_S, CALL_LIMIT_S))
            # Wait until the first statement of the renewal, which leaves out locked rows, has ended.
            while (await items.port.get(["other"], CALL_LIMIT_S))["other"].lease_s == LEASE_S:
                pass
            await other.commit()
            assert set(await waiting) == {key, free}

    async def test_whoever_waited_while_another_took_it_hears_who(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        calls = (
            lambda: items.port.save(key, "SENT", None, CALL_LIMIT_S),
            lambda: items.port.delete(key, CALL_LIMIT_S),
            lambda: items.leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S),
            lambda: items.port.put(NewItem("deal", "SENT", "{}", "ada"), CALL_LIMIT_S),
        )
        for call in calls:
            no = refused(await waited(harness, call(), HAND_OVER))
            assert no.current is not None
            assert (no.reason, no.current.holder_id, no.current.state) == (HELD_BY_ANOTHER, "bob", "NEW")
            key = await held_again(items)

    async def test_whoever_waited_while_it_was_deleted_hears_that(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        no = refused(await waited(harness, items.port.save(key, "SENT", None, CALL_LIMIT_S), GONE))
        assert no.reason == ABSENT

    async def test_a_row_that_stays_locked_makes_a_verb_unavailable_and_changes_nothing(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        clients = [await harness.items(init=False) for _ in range(6)]
        for one in clients:  # connect now: the limits below are for the wait alone
            await one.port.get(["deal"], CALL_LIMIT_S)
        async with locked(harness):
            renewed, *answers = await asyncio.gather(
                clients[0].leases.renew([key], LEASE_S, IN_VAIN_S),
                clients[1].port.save(key, "SENT", None, IN_VAIN_S),
                clients[2].port.delete(key, IN_VAIN_S),
                clients[3].leases.acquire("deal", "ada", LEASE_S, IN_VAIN_S),
                clients[4].port.put(NewItem("deal", "SENT", "{}", "ada"), IN_VAIN_S),
                clients[5].leases.break_leases([key], IN_VAIN_S),
                return_exceptions=True,
            )
        assert renewed == {}
        assert [type(answer) for answer in answers] == [Unavailable] * 5
        current = (await items.port.get(["deal"], CALL_LIMIT_S))["deal"]
        assert (current.state, current.key) == ("NEW", key)

    async def test_a_lease_that_was_waited_for_begins_with_its_grant(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        assert await items.leases.break_leases([key], CALL_LIMIT_S) == {}
        granted = row(
            await waited(harness, items.leases.acquire("deal", "bob", LEASE_S, CALL_LIMIT_S), at=START + LEASE)
        )
        assert (granted.leased_at, granted.expires_at) == (START + LEASE, START + 2 * LEASE)

    async def test_a_put_that_waited_begins_its_state_when_it_is_done(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        call = items.port.put(NewItem("deal", "SENT", "{}", "ada"), CALL_LIMIT_S)
        assert row(await waited(harness, call, at=START + LEASE)).state_timestamp == START + LEASE

    async def test_a_put_of_what_another_is_just_putting_waits_and_replaces_it(
        self, harness: Harness, items: ItemStore
    ) -> None:
        async with harness.sql.doors()[0].open() as other:
            await other.begin()
            await other.execute(PUT)
            waiting = await started(harness, items.port.put(NewItem("deal", "SENT", "1", "ada"), CALL_LIMIT_S))
            await other.commit()
            assert row(await waiting).state == "SENT"
        assert (await items.port.get(["deal"], CALL_LIMIT_S))["deal"].document_json == "1"

    async def test_a_break_that_waited_has_broken_the_lease(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        assert await waited(harness, items.leases.break_leases([key], CALL_LIMIT_S)) == {}
        assert (await items.port.get(["deal"], CALL_LIMIT_S))["deal"].holder_id is None

    async def test_an_item_that_another_session_has_locked_is_left_out_and_not_waited_for(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        assert await items.leases.break_leases([key], CALL_LIMIT_S) == {}
        row(await items.port.put(NewItem("other", "NEW", "{}", "ada"), CALL_LIMIT_S))
        async with locked(harness):
            taken = await items.leases.next_for_state("NEW", 9, "bob", LEASE_S, CALL_LIMIT_S)
        assert [one.id for one in taken] == ["other"]

    async def test_who_asks_for_what_another_holds_does_not_wait_for_its_row(
        self, harness: Harness, items: ItemStore, key: ItemKey
    ) -> None:
        async with locked(harness):
            assert refused(await items.leases.acquire("deal", "bob", LEASE_S, CALL_LIMIT_S)).reason == HELD_BY_ANOTHER
            assert set(await items.leases.break_leases([ItemKey("deal", "bob", 0)], CALL_LIMIT_S)) == {
                ItemKey("deal", "bob", 0)
            }
        assert list(await items.leases.renew([key], LEASE_S, CALL_LIMIT_S)) == [key]


async def held_again(items: ItemStore) -> ItemKey:
    assert await items.leases.break_leases([ItemKey("deal", "bob", 0)], CALL_LIMIT_S) == {}
    return row(await items.leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S)).key


@asynccontextmanager
async def locked(harness: Harness) -> AsyncIterator[Caller]:
    """Inside the block, a transaction of another session keeps the item's row locked; yields the session's connection.

    The block may end the lock early by a commit of that connection.
    """
    async with harness.sql.doors()[0].open() as caller:
        await caller.begin()
        await caller.execute(TOUCH)
        yield caller
        await caller.rollback()


async def waited(
    harness: Harness, call: Coroutine[Any, Any, T], meanwhile: str | None = None, at: dt.datetime | None = None
) -> T:
    """Return the answer to a call that waits for a row which another session has locked.

    Before that session commits, it runs `meanwhile`, if given, and the store's clock is set to `at`, if given.
    """
    async with locked(harness) as other:
        waiting = await started(harness, call)
        if meanwhile is not None:
            await other.execute(meanwhile)
        if at is not None:
            await harness.set_clock(at)
        await other.commit()
        return await waiting


async def started(harness: Harness, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start the call as a task, and return the task once the call waits for the locked row."""
    task = asyncio.create_task(call)
    await harness.sql.until_one_waits()
    return task
