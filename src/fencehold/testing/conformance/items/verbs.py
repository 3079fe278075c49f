"""What the verbs of items promise beyond a single rule: order, limits, batches, and what is shown to whom."""

from __future__ import annotations

import datetime as dt

from fencehold.model.items.items import ABSENT, HELD_BY_ANOTHER, LAPSED, ItemKey
from fencehold.testing.conformance.items.pair import ItemPair, ItemTests, refused, row
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START
from fencehold.testing.harness import CALL_LIMIT_S

SECOND = dt.timedelta(seconds=1)


class ItemVerbs(ItemTests):
    async def test_a_lease_is_shown_only_while_it_is_live(self, pair: ItemPair) -> None:
        made = row(await pair.put("deal", "NEW", {"n": 1}))
        assert (made.token, made.holder_id, made.expires_at, made.lease_s) == (0, None, None, 0.0)
        held = row(await pair.acquire("deal"))
        assert (held.holder_id, held.leased_at, held.expires_at) == ("ada", START, START + LEASE)
        assert (held.lease_s, held.remaining_s) == (LEASE_S, LEASE_S)
        assert all(at.tzinfo is dt.UTC for at in (held.state_timestamp, held.leased_at, held.expires_at) if at)
        await pair.set_clock(START + LEASE)
        lapsed = (await pair.port.get(["deal"], CALL_LIMIT_S))["deal"]
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
        seen = (await pair.port.get(["deal"], CALL_LIMIT_S))["deal"]
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
