"""Tests what the verbs of items promise beyond a single rule: order, limits, batches, and what is shown to whom."""

from __future__ import annotations

import datetime as dt

from fencehold.model.items.rules import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.ports.items import NewItem, Stretch
from fencehold.testing.conformance.items.pair import EVERYTHING, NEVER_GRANTED, ItemPair, ItemTests, refused, row
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START
from fencehold.testing.harness import CALL_LIMIT_S, Harness

SECOND = dt.timedelta(seconds=1)
BATCH = 50
SKIPPED = 250


class ItemVerbs(ItemTests):
    async def test_a_lease_is_shown_only_while_it_is_live(self, pair: ItemPair) -> None:
        made = row(await pair.put("deal", "NEW", {"n": 1}))
        assert (made.token, made.holder_id, made.expires_at, made.lease_s) == (0, None, None, 0.0)
        held = row(await pair.acquire("deal"))
        assert (held.holder_id, held.leased_at, held.expires_at) == ("ada", START, START + LEASE)
        assert (held.lease_s, held.remaining_s) == (LEASE_S, LEASE_S)
        assert all(at.tzinfo is dt.UTC for at in (held.state_timestamp, held.leased_at, held.expires_at) if at)
        await pair.set_clock(START + LEASE)
        lapsed = (await pair.client.port.get(["deal"], CALL_LIMIT_S))["deal"]
        assert (lapsed.holder_id, lapsed.leased_at, lapsed.expires_at) == (None, None, None)
        assert (lapsed.lease_s, lapsed.remaining_s, lapsed.token) == (0.0, 0.0, held.token)

    async def test_a_refusal_names_the_holder_and_until_when(self, pair: ItemPair) -> None:
        await pair.leased("deal", {"n": 1})
        bobs = ItemKey("deal", "bob", 0)
        broken = await pair.break_leases(bobs)
        for answer in (await pair.acquire("deal", "bob"), await pair.put("deal", "X", holder="bob"), broken[bobs]):
            no = refused(answer)
            assert no.current is not None
            assert (no.reason, no.current.holder_id) == (HELD_BY_ANOTHER, "ada")
            assert (no.current.expires_at, no.current.remaining_s) == (START + LEASE, LEASE_S)

    async def test_a_refusal_says_whether_the_item_is_absent_free_or_held_again(self, pair: ItemPair) -> None:
        assert refused(await pair.acquire("deal")).reason == ABSENT
        first = await pair.leased("deal")
        await pair.take("deal")
        assert refused(await pair.save(first, "X")).reason == HELD_BY_ANOTHER, "by a later lease of its own"
        await pair.set_clock(START + LEASE)
        assert refused(await pair.save(first, "X")).reason == LAPSED
        assert refused(await pair.delete(first)).reason == LAPSED

    async def test_every_lease_has_a_higher_token_also_after_the_item_was_deleted(self, pair: ItemPair) -> None:
        tokens = []
        for turn in range(3):
            await pair.put("deal", "NEW", {"turn": turn})
            await pair.put("other", "OTHER")
            tokens += [(await pair.take("deal")).token, (await pair.take("deal")).token]
            await pair.break_leases(pair.key("deal"))
            assert await pair.next("NEW", 1, "bob") == ["deal"]
            tokens.append(pair.key("deal").token)
            await pair.take("other", f"holder {turn}", 1.0)
            assert await pair.delete(pair.key("deal")) is None
            await pair.set_clock(pair.now + SECOND)
        assert tokens == sorted(set(tokens))

    async def test_a_stale_holder_cannot_touch_an_item_that_was_deleted_and_put_again(self, pair: ItemPair) -> None:
        stale = await pair.leased("deal")
        await pair.delete(stale)
        held = await pair.leased("deal", "the second of this name")
        refused(await pair.save(stale, "X"))
        refused(await pair.delete(stale))
        assert await pair.renew([stale, held]) == ["deal"]
        assert list(await pair.break_leases(stale)) == [stale]

    async def test_a_renewal_touches_the_lease_and_nothing_else(self, pair: ItemPair) -> None:
        key = await pair.leased("deal", {"n": 1})
        await pair.set_clock(START + 7 * SECOND)
        await pair.save(key, "FINISHED", document={"n": 2})
        await pair.set_clock(START + 9 * SECOND)
        assert await pair.renew([key], 90.0) == ["deal"]
        seen = (await pair.client.port.get(["deal"], CALL_LIMIT_S))["deal"]
        assert (seen.state, seen.state_timestamp, seen.token) == ("FINISHED", START + 7 * SECOND, key.token)
        assert (seen.leased_at, seen.expires_at, seen.lease_s) == (START, START + 99 * SECOND, 90.0)

    async def test_a_renewal_may_shorten_a_lease(self, pair: ItemPair) -> None:
        key = await pair.leased("deal")
        await pair.renew([key], 2.0)
        await pair.set_clock(START + 2 * SECOND)
        assert await pair.next("NEW", holder="bob") == ["deal"]

    async def test_what_a_save_does_not_name_stays(self, pair: ItemPair) -> None:
        key = await pair.leased("deal", {"n": 1})
        await pair.set_clock(START + SECOND)
        kept = row(await pair.save(key, document={"n": 2}))
        assert (kept.state, kept.state_timestamp) == ("NEW", START), "no transition, no new place in the queue"
        moved = row(await pair.save(key, "SENT"))
        assert (moved.state_timestamp, moved.expires_at) == (START + SECOND, START + LEASE)
        assert row(await pair.save(key)).token == key.token, "nothing named is a check of the lease"
        assert row(await pair.save(key, document=None)).document_json == "null", "null is a document too"

    async def test_naming_the_same_state_moves_the_item_to_the_back(self, pair: ItemPair) -> None:
        for number, item_id in enumerate(("a", "b", "c")):
            await pair.set_clock(START + number * SECOND)
            await pair.put(item_id)
        await pair.set_clock(START + 5 * SECOND)
        await pair.save(await pair.take("a"), "NEW")
        await pair.break_leases(pair.key("a"))
        await pair.set_clock(START + 6 * SECOND)
        await pair.put("b")
        assert await pair.next("NEW") == ["c", "a", "b"]

    async def test_a_put_under_an_own_lease_leaves_the_lease(self, pair: ItemPair) -> None:
        key = await pair.leased("deal")
        await pair.set_clock(START + SECOND)
        put = row(await pair.put("deal", "SENT", {"n": 2}))
        assert (put.token, put.holder_id, put.expires_at) == (key.token, "ada", START + LEASE)
        row(await pair.save(key, "AGREED"))

    async def test_a_deleted_item_is_gone(self, pair: ItemPair) -> None:
        await pair.put("deal")
        await pair.put("left")
        await pair.delete(await pair.take("deal"))
        assert await pair.find() == ["left"]
        assert await pair.next("NEW") == ["left"]
        assert refused(await pair.acquire("deal")).reason == ABSENT


class ItemBatches(ItemTests):
    async def test_the_longest_in_its_state_comes_first(self, pair: ItemPair) -> None:
        for after_s, item_id in ((3, "d"), (1, "b"), (0, "c"), (2, "a")):
            await pair.set_clock(START + after_s * SECOND)
            await pair.put(item_id)
        await pair.put("elsewhere", "SENT")
        assert await pair.find("NEW") == ["c", "b", "a", "d"]
        assert await pair.next("NEW", 1) == ["c"]
        assert await pair.next("NEW", 2, "bob") == ["b", "a"]
        assert await pair.next("NEW", EVERYTHING, "cy") == ["d"], "as many as there are"
        assert await pair.next("NEW") == []
        assert await pair.next("never") == []

    async def test_what_is_to_be_skipped_hides_nobody_and_is_not_touched(self, pair: ItemPair) -> None:
        names = ["a", "a'b", 'with "quotes", {and} commas', "back\\slash", "é/?#", "e", "f"]
        for number, item_id in enumerate(names):
            await pair.set_clock(START + number * SECOND)
            await pair.put(item_id)
        await pair.take("e", "bob")
        assert await pair.next("NEW", 1, skip=[*names[:5], "never was"]) == ["f"], "behind all that is skipped or held"
        assert await pair.next("NEW", 2, skip=[names[0], names[2], names[0]]) == [names[1], names[3]]
        assert await pair.next("NEW", 5, skip=names) == []
        assert await pair.next("NEW", EVERYTHING, skip=["A"]) == ["a", names[2], names[4]], "by its exact id"

    async def test_of_a_stretch_of_time_only_those_are_taken_that_came_within_it(self, pair: ItemPair) -> None:
        for after_s, item_id in enumerate(("a", "b", "c", "d", "e")):
            await pair.set_clock(START + after_s * SECOND)
            await pair.put(item_id)

        async def taken(since_s: int | None, before_s: int | None, *skip: str) -> list[str]:
            since, before = (None if after_s is None else START + after_s * SECOND for after_s in (since_s, before_s))
            stretch = Stretch(since, before)
            got = await pair.client.leases.next_for_state("NEW", 9, "ada", LEASE_S, CALL_LIMIT_S, skip, stretch)
            return [one.id for one in got]

        assert await taken(1, 1) == []
        assert await taken(1, 3, "c") == ["b"], "its beginning is part of it, its end is not"
        assert await taken(None, 1) == ["a"]
        assert await taken(3, None) == ["d", "e"]
        assert await taken(None, None) == ["c"]

    async def test_more_than_a_page_may_be_skipped(self, pair: ItemPair) -> None:
        resting = [f"item {number}" for number in range(SKIPPED)]
        for item_id in resting:
            await pair.client.port.put(NewItem(item_id, "NEW", "1", "ada"), CALL_LIMIT_S)
        await pair.set_clock(START + SECOND)
        await pair.put("last")
        left = await pair.client.leases.next_for_state("NEW", 20, "ada", LEASE_S, CALL_LIMIT_S, resting)
        assert [one.id for one in left] == ["last"]
        assert {one.token for one in (await pair.client.port.get(resting, CALL_LIMIT_S)).values()} == {0}

    async def test_the_limit_is_kept(self, pair: ItemPair) -> None:
        for number in range(5):
            await pair.put(f"item {number}")
        assert await pair.next("NEW", 0) == []
        assert await pair.find("NEW", 0) == []
        assert len(await pair.find(None, 3)) == 3
        assert len(await pair.next("NEW", 3)) == 3
        assert len(await pair.next("NEW", 3)) == 2

    async def test_a_live_lease_is_not_returned_whoever_holds_it_and_a_lapsed_one_is(self, pair: ItemPair) -> None:
        for item_id in ("own", "other", "lapsing", "free"):
            await pair.put(item_id)
        await pair.take("own")
        await pair.take("other", "bob")
        first = await pair.take("lapsing", "bob", 5.0)
        await pair.set_clock(START + 5 * SECOND)
        assert sorted(await pair.next("NEW")) == ["free", "lapsing"]
        assert pair.key("lapsing").token > first.token
        assert sorted(await pair.find("NEW")) == ["free", "lapsing", "other", "own"], "found, held or not"
        await pair.set_clock(START + LEASE)
        assert sorted(await pair.next("NEW", holder="cy")) == ["other", "own"]

    async def test_a_batch_is_leased_until_one_instant_each_under_its_own_key(self, pair: ItemPair) -> None:
        for number in range(BATCH):
            await pair.put(f"item {number}", "NEW", {"n": number})
        ids = await pair.next("NEW", BATCH, "bob", 30.0)
        assert len(ids) == BATCH
        keys = [pair.key(item_id) for item_id in ids]
        assert sorted(await pair.renew(keys)) == sorted(ids)
        assert await pair.break_leases(*keys) == {}

    async def test_a_renewed_batch_is_answered_without_what_was_lost(self, pair: ItemPair) -> None:
        for item_id in ("kept", "taken again", "broken", "lapsed", "deleted", "kept too", "another's"):
            await pair.put(item_id)
            await pair.take(item_id, lease_s=5.0 if item_id == "lapsed" else 60.0)
        keys = [pair.key(item_id) for item_id in pair.oracle.rows]
        await pair.take("taken again")
        await pair.break_leases(pair.key("broken"))
        await pair.delete(pair.key("deleted"))
        foreign = [ItemKey(key.id, "bob", key.token) for key in keys if key.id == "another's"]
        mine = [key for key in keys if key.id != "another's"]
        await pair.set_clock(START + 5 * SECOND)
        assert await pair.renew([*foreign, *mine, ItemKey("never was", "ada", 1)]) == ["kept", "kept too"]

    async def test_a_broken_batch_is_answered_with_what_was_refused(self, pair: ItemPair) -> None:
        for item_id in ("own", "own too", "another's", "lapsed", "never leased", "earlier", "later"):
            await pair.put(item_id)
        keys = {item_id: await pair.take(item_id) for item_id in ("own", "own too", "earlier", "later")}
        await pair.take("earlier")
        keys |= {"lapsed": await pair.take("lapsed", "bob", 5.0), "another's": await pair.take("another's", "bob")}
        keys["another's"] = ItemKey("another's", "ada", keys["another's"].token)
        keys["own too"] = ItemKey("own too", "ada", 0)
        keys["later"] = ItemKey("later", "ada", NEVER_GRANTED)
        for item_id in ("never leased", "never was"):
            keys[item_id] = ItemKey(item_id, "ada", 0)
        await pair.set_clock(START + 5 * SECOND)
        no = await pair.break_leases(*keys.values())
        assert sorted(key.id for key in no) == ["another's", "earlier", "later"]
        assert sorted(await pair.next("NEW")) == ["lapsed", "never leased", "own", "own too"]

    async def test_of_two_keys_to_one_item_the_holders_counts_once(self, pair: ItemPair) -> None:
        stale = await pair.leased("deal")
        mine = await pair.take("deal")
        other = ItemKey("deal", "bob", mine.token)
        until = await pair.client.leases.renew([other, stale, mine, mine], 60.0, CALL_LIMIT_S)
        assert until == {mine: START + LEASE}
        assert mine not in await pair.client.leases.break_leases([other, mine, mine], CALL_LIMIT_S)
        assert (await pair.client.port.get(["deal"], CALL_LIMIT_S))["deal"].holder_id is None

    async def test_nothing_asked_is_nothing_answered(self, pair: ItemPair) -> None:
        assert await pair.client.port.get([], CALL_LIMIT_S) == {}
        assert await pair.client.port.get(["never was"], CALL_LIMIT_S) == {}
        assert await pair.client.leases.renew([], 60.0, CALL_LIMIT_S) == {}
        assert await pair.client.leases.break_leases([], CALL_LIMIT_S) == {}
        assert await pair.find() == []

    async def test_some_of_those_asked_for_are_there(self, pair: ItemPair) -> None:
        await pair.put("a", "NEW", 1)
        await pair.put("b", "SENT", 2)
        await pair.take("b")
        await pair.check(["never was", "b", "a", "A"], "get")
        assert set(await pair.client.port.get(["b", "b", "never was"], CALL_LIMIT_S)) == {"b"}

    async def test_kinds_do_not_see_each_other(self, harness: Harness) -> None:
        one, two = await ItemPair.of(harness, kind="negotiation"), await ItemPair.of(harness, kind="transfer")
        await one.put("7", "NEW", "of the one")
        refused(await two.acquire("7"))
        await two.put("7", "NEW", "of the other")
        assert await one.next("NEW") == ["7"]
        mine = await one.take("7")
        assert await two.next("NEW") == ["7"], "taken in the one kind, free in the other"
        for wrong in (two.renew([mine]), two.save(mine, "X"), two.delete(mine), two.put("7", "SENT", "put")):
            await wrong
            await one.check(["7"], "asked of the other kind")
        await two.break_leases(ItemKey("7", "ada", 0))
        await one.check(["7"], "broken in the other kind")
        await two.delete(await two.take("7"))
        await one.check(["7"], "deleted in the other kind")
        assert (await one.find(), await two.find()) == (["7"], [])
        row(await one.save(mine, "SENT"))

    async def test_init_may_be_repeated_and_keeps_what_is_there(self, harness: Harness, pair: ItemPair) -> None:
        key = await pair.leased("deal", {"n": 1})
        again = await harness.items("another kind")
        assert await again.schema.init(CALL_LIMIT_S) == [], "the tables of one kind are those of all"
        row(await pair.save(key, "SENT"))
        assert again.schema.script()
