"""Items by etag: how many requests a verb is, what a renewal sends, and how ids and kinds find their partition."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fencehold.backends.cosmos.address import parse
from fencehold.backends.cosmos.backend import CosmosBackend
from fencehold.backends.cosmos.documents import ID_CHARS_MAX, document_id
from fencehold.backends.cosmos.items.documents import bucket_of, item_partition
from fencehold.backends.cosmos.items.items import CosmosItems
from fencehold.backends.cosmos.wire import Wire
from fencehold.model.errors import Unavailable, Uncertain
from fencehold.ports.items import ItemRefusal, ItemRow, NewItem
from fencehold.testing.conformance.leases.names import AWKWARD, LOOK_ALIKES
from tests.fencehold.backends.cosmos.charged import Charged
from tests.fencehold.backends.cosmos.conftest import LIMIT_S
from tests.servers.cosmos import CosmosServer

Opened = Callable[..., Any]
BATCH = 20
REQUESTS_MAX = 22
CROWD_LIMIT_S = 50.0  # twenty clients in one process, on a busy machine


async def filled(items: Any, count: int) -> None:
    for n in range(count):
        await items.port.put(NewItem(f"item {n}", "NEW", json.dumps({"n": n}), "whoever"), LIMIT_S)


async def clients(stack: AsyncExitStack, opened: Opened, count: int) -> list[Any]:
    made = [(await stack.enter_async_context(opened())).items("negotiation") for _ in range(count)]
    for items in made:
        stack.push_async_callback(items.close)
    return made


async def taken_at_once(takers: Sequence[Any], wanted: int) -> list[str]:
    calls = (
        one.leases.next_for_state("NEW", wanted, f"taker {n}", 60.0, CROWD_LIMIT_S) for n, one in enumerate(takers)
    )
    ids = [row.id for batch in await asyncio.gather(*calls) for row in batch]
    assert len(ids) == len(set(ids)), "leased to two at once"
    return ids


async def test_a_batch_of_20_is_leased_in_22_requests_at_most(opened: Opened, cosmos_server: CosmosServer) -> None:
    charged = Charged()
    async with opened(facts=charged) as backend:
        items = backend.items("negotiation")
        await filled(items, BATCH + 5)
        before = cosmos_server.request_count()
        taken = await items.leases.next_for_state("NEW", BATCH, "ada", 60.0, LIMIT_S)
        assert len(taken) == BATCH
        assert cosmos_server.request_count() - before <= REQUESTS_MAX
        assert len(charged.units["next_for_state"]) <= REQUESTS_MAX
        await items.close()


async def test_with_nobody_in_the_way_fewer_free_items_than_wanted_are_one_query_and_no_second_look(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        before = cosmos_server.request_count()
        assert len(await items.leases.next_for_state("NEW", BATCH, "ada", 60.0, LIMIT_S)) == 3
        assert cosmos_server.request_count() - before == 1 + 3
        await items.close()


async def test_a_held_item_is_renewed_saved_and_broken_by_one_request_each(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 10)
        taken = await items.leases.next_for_state("NEW", 10, "ada", 60.0, LIMIT_S)
        keys = [one.key for one in taken]
        before = cosmos_server.request_count()
        assert len(await items.leases.renew(keys, 60.0, LIMIT_S)) == 10
        for key in keys:
            assert isinstance(await items.port.save(key, "SENT", None, LIMIT_S), ItemRow)
        assert await items.leases.break_leases(keys, LIMIT_S) == {}
        assert cosmos_server.request_count() - before == 30
        await items.close()


async def test_a_renewal_leaves_what_the_holder_saved_through_another_client(opened: Opened) -> None:
    """Its client remembers the document as it was before, and must not write that back."""
    async with opened() as one, opened() as two:
        mine, other = one.items("negotiation"), two.items("negotiation")
        await filled(mine, 1)
        [held] = await mine.leases.next_for_state("NEW", 1, "ada", 60.0, LIMIT_S)
        assert isinstance(await other.port.save(held.key, "FINISHED", '{"n": 9}', LIMIT_S), ItemRow)
        assert list(await mine.leases.renew([held.key], 90.0, LIMIT_S)) == [held.key]
        found = (await mine.port.get([held.id], LIMIT_S))[held.id]
        assert (found.state, found.document_json, found.lease_s) == ("FINISHED", '{"n": 9}', 90.0)
        for items in (mine, other):
            await items.close()


@pytest.mark.parametrize("verb", ["save", "delete", "renew", "break_leases"])
async def test_nothing_is_done_under_a_lease_that_another_took_whatever_the_client_remembers(
    opened: Opened, cosmos_server: CosmosServer, verb: str
) -> None:
    """It judges a document that was its own a moment ago; only the etag knows better."""
    async with opened() as one, opened() as two:
        mine, other = one.items("negotiation"), two.items("negotiation")
        await filled(mine, 1)
        [held] = await mine.leases.next_for_state("NEW", 1, "ada", 60.0, LIMIT_S)
        cosmos_server.shift_clock(3600.0)
        taken = await other.leases.acquire(held.id, "bob", 60.0, LIMIT_S)
        assert isinstance(taken, ItemRow)
        calls = {
            "save": lambda: mine.port.save(held.key, "X", None, LIMIT_S),
            "delete": lambda: mine.port.delete(held.key, LIMIT_S),
            "renew": lambda: mine.leases.renew([held.key], 600.0, LIMIT_S),
            "break_leases": lambda: mine.leases.break_leases([held.key], LIMIT_S),
        }
        answer = await calls[verb]()
        assert answer == {} if verb == "renew" else isinstance(answer, ItemRefusal) or list(answer) == [held.key]
        found = (await other.port.get([held.id], LIMIT_S))[held.id]
        assert (found.holder_id, found.expires_at, found.state) == ("bob", taken.expires_at, "NEW")
        for items in (mine, other):
            await items.close()


async def test_a_client_that_knows_its_lease_is_over_asks_who_has_the_item_before_it_calls_it_free(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as one, opened() as two:
        mine, other = one.items("negotiation"), two.items("negotiation")
        await filled(mine, 1)
        [held] = await mine.leases.next_for_state("NEW", 1, "ada", 60.0, LIMIT_S)
        cosmos_server.shift_clock(3600.0)
        assert isinstance(await other.leases.acquire(held.id, "bob", 60.0, LIMIT_S), ItemRow)
        await mine.port.put(NewItem("clock", "OTHER", "1", "ada"), LIMIT_S)  # its answer tells the time
        assert list(await mine.leases.break_leases([held.key], LIMIT_S)) == [held.key]
        for items in (mine, other):
            await items.close()


async def test_a_renewal_without_an_answer_is_uncertain_and_may_be_repeated(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        keys = [one.key for one in await items.leases.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)]
        cosmos_server.fail_next(1, 503, method="PATCH")
        with pytest.raises(Uncertain):
            await items.leases.renew(keys, 60.0, LIMIT_S)
        assert set(await items.leases.renew(keys, 60.0, LIMIT_S)) == set(keys)
        await items.close()


@pytest.mark.parametrize("status", [429, 403])
async def test_a_batch_of_which_a_part_was_refused_is_not_said_to_be_unexecuted(
    opened: Opened, cosmos_server: CosmosServer, status: int
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        keys = [one.key for one in await items.leases.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)]
        cosmos_server.fail_next(1, status, retry_ms=60_000, method="PATCH")
        with pytest.raises(Uncertain) as caught:
            await items.leases.renew(keys, 60.0, LIMIT_S)
        assert caught.value.code == "half_done"
        await items.close()


@pytest.mark.parametrize("status", [503, 403])
async def test_of_a_batch_in_which_one_was_not_granted_the_others_are_handed_out(
    opened: Opened, cosmos_server: CosmosServer, status: int
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 5)
        cosmos_server.fail_next(1, status, method="PUT")
        assert len(await items.leases.next_for_state("NEW", 5, "ada", 60.0, LIMIT_S)) == 4
        await items.close()


async def test_in_several_buckets_the_longest_in_its_state_still_comes_first(
    opened: Opened, cosmos_server: CosmosServer, cosmos_url: str
) -> None:
    url = cosmos_url + "&buckets=4"
    async with opened(url=url) as backend:
        items = backend.items("negotiation")
        for n in range(8):
            cosmos_server.shift_clock(60.0 * n)
            items.port._wire.clock = type(items.port._wire.clock)()  # a new reading for each
            await items.port.put(NewItem(f"item {n}", "NEW", "{}", "whoever"), LIMIT_S)
        assert len({bucket_of(f"item {n}", 4) for n in range(8)}) > 1
        taken = await items.leases.next_for_state("NEW", 5, "ada", 60.0, LIMIT_S)
        assert [one.id for one in taken] == [f"item {n}" for n in range(5)]
        assert len(await items.admin.find(None, 100, LIMIT_S)) == 8
        await items.close()


async def test_what_one_client_put_within_a_second_is_leased_in_the_order_it_was_put(opened: Opened) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 40)
        taken = await items.leases.next_for_state("NEW", 40, "ada", 60.0, LIMIT_S)
        assert [one.id for one in taken] == [f"item {n}" for n in range(40)]
        assert len({one.state_timestamp for one in taken}) == 40
        await items.close()


@pytest.mark.parametrize(("wanted", "leased"), [(1, 20), (2, 23), (20, 23)])
async def test_20_takers_of_23_free_items_get_all_they_asked_for_until_nothing_is_free(
    opened: Opened, wanted: int, leased: int
) -> None:
    async with AsyncExitStack() as stack:
        takers = await clients(stack, opened, 20)
        await filled(takers[0], 23)
        assert len(await taken_at_once(takers, wanted)) == leased


async def test_who_was_beaten_looks_further_so_that_not_all_try_for_the_same(
    opened: Opened, cosmos_server: CosmosServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        real, looked = items.port._free, []

        async def heard(call: Any, partition: str, state: str, limit: int, skip: Sequence[str]) -> list[Any]:
            looked.append(limit)
            return list(await real(call, partition, state, limit, skip))

        monkeypatch.setattr(items.port, "_free", heard)
        cosmos_server.fail_next(5 * 3, 412, method="PUT")
        assert len(await items.leases.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)) == 3
        assert looked[:6] == [3, 6, 12, 24, 24, 24]
        await items.close()


async def test_who_was_beaten_takes_the_oldest_again_once_alone(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        mine, other = one.items("negotiation"), two.items("negotiation")
        await filled(mine, 12)
        await asyncio.gather(*(who.leases.next_for_state("NEW", 2, "x", 60.0, LIMIT_S) for who in (mine, other) * 2))
        free = [row.id for row in await mine.admin.find("NEW", 12, LIMIT_S) if row.holder_id is None]
        assert [row.id for row in await mine.leases.next_for_state("NEW", 2, "x", 60.0, LIMIT_S)] == free[:2]
        for items in (mine, other):
            await items.close()


async def test_who_is_beaten_for_as_long_as_the_call_may_take_is_told_so(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    """412 for every write: somebody is always quicker. An empty list would say that nothing is free."""
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        cosmos_server.fail_next(10_000, 412, method="PUT")
        with pytest.raises((Unavailable, Uncertain)):  # uncertain if the last write was still on its way
            await items.leases.next_for_state("NEW", 3, "ada", 60.0, 0.5)
        cosmos_server.behave()
        assert len(await items.leases.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)) == 3
        await items.close()


async def test_what_is_taken_at_the_second_try_stands_in_its_place(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        real, tried = items.port._taken, []

        async def beaten_once(call: Any, document: Any, made: Any) -> ItemRow | None:
            tried.append(document["itemId"])
            return None if tried == ["item 0"] else await real(call, document, made)

        monkeypatch.setattr(items.port, "_taken", beaten_once)
        taken = await items.leases.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)
        assert [one.id for one in taken] == ["item 0", "item 1", "item 2"]
        assert tried == ["item 0", "item 1", "item 2", "item 0"]
        await items.close()


async def test_what_was_taken_before_the_time_was_over_is_handed_out(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        real = items.port._taken

        async def beaten_to_one(call: Any, document: Any, made: Any) -> ItemRow | None:
            return None if document["itemId"] == "item 1" else await real(call, document, made)

        monkeypatch.setattr(items.port, "_taken", beaten_to_one)
        taken = await items.leases.next_for_state("NEW", 3, "ada", 60.0, 1.5)
        assert [one.id for one in taken] == ["item 0", "item 2"]
        await items.close()


def test_no_two_names_share_an_id_and_every_id_is_one_that_cosmos_takes():
    long = ["x" * 2000, "x" * 1999 + "y", "\U0001f98a" * 255, "\U0001f98a" * 254]
    every = [*LOOK_ALIKES, *AWKWARD, *long, "~clock", "~", "~7e", "clock"]
    ids = [document_id(name) for name in every]
    assert len(set(ids)) == len(set(every))
    assert all(len(one) <= ID_CHARS_MAX and not set(one) & set("/\\?#. %+") for one in ids)
    assert "~clock" not in ids


def test_kinds_and_buckets_never_share_a_partition():
    kinds = [*LOOK_ALIKES, *AWKWARD]
    assert len({item_partition(kind, bucket) for kind in kinds for bucket in (0, 1, 10)}) == 3 * len(kinds)


def test_a_bucket_is_the_same_for_ever():
    assert [bucket_of(name, 16) for name in ("7", "item 1", "caf\u00e9")] == [14, 8, 9]


def test_the_parts_say_what_they_are_made_of(cosmos_url: str) -> None:
    backend = CosmosBackend(parse(cosmos_url), "fencehold_leases")
    items = backend.items("negotiation")
    assert isinstance(items, CosmosItems)
    assert items.schema.script() == backend.schema.script()
    assert Wire(parse(cosmos_url)).address.container == "fencehold"
