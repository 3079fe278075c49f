"""Tests that only the store's clock counts for an item, even if it is hours off or jumps.

The process's own clock is not used.
"""

from __future__ import annotations

import datetime as dt

import pytest

from fencehold.ports.items import ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.items.pair import ItemPair, ItemTests, refused, row
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START
from fencehold.testing.harness import CALL_LIMIT_S, Harness

HOURS = dt.timedelta(hours=7)
NEAR = dt.timedelta(minutes=5)  # as far as the clocks of one machine and its servers may differ


class ItemTimes(ItemTests):
    @pytest.mark.parametrize("ahead", [HOURS, -HOURS, dt.timedelta(days=4000)], ids=["ahead", "behind", "years ahead"])
    async def test_a_clock_that_is_hours_off_changes_nothing(
        self, harness: Harness, one: ItemStore, two: ItemStore, ahead: dt.timedelta
    ) -> None:
        await harness.shift_clock(ahead)
        made = row(await one.port.put(NewItem("deal", "NEW", "{}", "ada"), CALL_LIMIT_S))
        [held] = await one.leases.next_for_state("NEW", 9, "ada", LEASE_S, CALL_LIMIT_S)
        assert held.expires_at is not None
        for at in (made.state_timestamp, held.leased_at, held.expires_at - LEASE):
            assert at is not None
            assert abs(at - (dt.datetime.now(dt.UTC) + ahead)) < NEAR, "times are the store's own"
        assert 0 < held.remaining_s <= LEASE_S
        refused(await two.leases.acquire("deal", "bob", LEASE_S, CALL_LIMIT_S))
        assert await two.leases.next_for_state("NEW", 9, "bob", LEASE_S, CALL_LIMIT_S) == []
        assert list(await one.leases.renew([held.key], LEASE_S, CALL_LIMIT_S)) == [held.key]
        assert isinstance(await one.port.save(held.key, "SENT", None, CALL_LIMIT_S), ItemRow)

    @pytest.mark.parametrize("day", ["1999-12-31T23:59:59", "2024-02-29T23:59:58", "2199-12-31T12:00:00"])
    async def test_any_instant_is_kept_exactly(self, pair: ItemPair, day: str) -> None:
        now = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)
        await pair.set_clock(now + pair.tick)
        await pair.put("deal")
        await pair.set_clock(now + 3 * pair.tick)
        assert await pair.next("NEW") == ["deal"]
        await pair.set_clock(now + 4 * pair.tick)
        await pair.renew([pair.key("deal")], 5.0)

    async def test_one_tick_decides_who_is_first(self, pair: ItemPair) -> None:
        for ticks, item_id in ((2, "c"), (0, "a"), (3, "d"), (1, "b")):
            await pair.set_clock(START + ticks * pair.tick)
            await pair.put(item_id)
        assert await pair.next("NEW") == ["a", "b", "c", "d"]

    async def test_a_jump_forward_gives_the_item_away_and_stops_the_first_holder(self, pair: ItemPair) -> None:
        first = await pair.leased("deal")
        await pair.set_clock(START + HOURS)
        second = await pair.take("deal", "bob")
        assert second.token > first.token
        await pair.set_clock(START)  # the clock goes back: a stale token stays stale
        refused(await pair.save(first, "X"))
        refused(await pair.acquire("deal"))
        assert await pair.renew([first, second]) == ["deal"]

    async def test_a_jump_back_keeps_the_holder_and_the_tokens_rising(self, pair: ItemPair) -> None:
        first = await pair.leased("deal")
        await pair.set_clock(START - HOURS)
        refused(await pair.acquire("deal", "bob"))
        assert await pair.renew([first]) == ["deal"]
        await pair.set_clock(START - HOURS + LEASE)
        assert (await pair.take("deal", "bob")).token > first.token
        refused(await pair.save(first, "X"))
