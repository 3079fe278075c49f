"""Items by etag: how many requests a verb is, what a renewal sends, and how ids and kinds find their partition."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fencehold.backends.cosmos.address import parse
from fencehold.backends.cosmos.backend import CosmosBackend
from fencehold.backends.cosmos.documents import ID_CHARS_MAX, document_id
from fencehold.backends.cosmos.item_documents import bucket_of, item_partition
from fencehold.backends.cosmos.items import CosmosItems
from fencehold.backends.cosmos.wire import Wire
from fencehold.model.errors import Uncertain
from fencehold.ports.items import ItemRefusal, ItemRow, NewItem
from fencehold.testing.conformance.names import AWKWARD, LOOK_ALIKES
from tests.cosmos.conftest import LIMIT_S
from tests.servers.cosmos import CosmosServer

Opened = Callable[..., Any]
BATCH = 20
REQUESTS_MAX = 22


async def filled(items: Any, count: int) -> None:
    for n in range(count):
        await items.port.put(NewItem(f"item {n}", "NEW", json.dumps({"n": n}), "whoever"), LIMIT_S)


async def test_a_batch_of_20_is_leased_in_22_requests_at_most(opened: Opened, cosmos_server: CosmosServer) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, BATCH + 5)
        before = cosmos_server.request_count()
        taken = await items.port.next_for_state("NEW", BATCH, "ada", 60.0, LIMIT_S)
        assert len(taken) == BATCH
        assert cosmos_server.request_count() - before <= REQUESTS_MAX
        assert backend.charges.by_verb()["next_for_state"].requests <= REQUESTS_MAX
        await items.close()


async def test_a_held_item_is_renewed_saved_and_broken_by_one_request_each(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 10)
        taken = await items.port.next_for_state("NEW", 10, "ada", 60.0, LIMIT_S)
        keys = [one.key for one in taken]
        before = cosmos_server.request_count()
        assert len(await items.port.renew(keys, 60.0, LIMIT_S)) == 10
        for key in keys:
            assert isinstance(await items.port.save(key, "SENT", None, LIMIT_S), ItemRow)
        assert await items.port.break_leases(keys, LIMIT_S) == {}
        assert cosmos_server.request_count() - before == 30
        await items.close()


async def test_a_renewal_leaves_what_the_holder_saved_through_another_client(opened: Opened) -> None:
    """Its client remembers the document as it was before, and must not write that back."""
    async with opened() as one, opened() as two:
        mine, other = one.items("negotiation"), two.items("negotiation")
        await filled(mine, 1)
        [held] = await mine.port.next_for_state("NEW", 1, "ada", 60.0, LIMIT_S)
        assert isinstance(await other.port.save(held.key, "FINISHED", '{"n": 9}', LIMIT_S), ItemRow)
        assert list(await mine.port.renew([held.key], 90.0, LIMIT_S)) == [held.key]
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
        [held] = await mine.port.next_for_state("NEW", 1, "ada", 60.0, LIMIT_S)
        cosmos_server.shift_clock(3600.0)
        taken = await other.port.acquire(held.id, "bob", 60.0, LIMIT_S)
        assert isinstance(taken, ItemRow)
        calls = {
            "save": lambda: mine.port.save(held.key, "X", None, LIMIT_S),
            "delete": lambda: mine.port.delete(held.key, LIMIT_S),
            "renew": lambda: mine.port.renew([held.key], 600.0, LIMIT_S),
            "break_leases": lambda: mine.port.break_leases([held.key], LIMIT_S),
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
        [held] = await mine.port.next_for_state("NEW", 1, "ada", 60.0, LIMIT_S)
        cosmos_server.shift_clock(3600.0)
        assert isinstance(await other.port.acquire(held.id, "bob", 60.0, LIMIT_S), ItemRow)
        await mine.port.put(NewItem("clock", "OTHER", "1", "ada"), LIMIT_S)  # its answer tells the time
        assert list(await mine.port.break_leases([held.key], LIMIT_S)) == [held.key]
        for items in (mine, other):
            await items.close()


async def test_a_renewal_without_an_answer_is_uncertain_and_may_be_repeated(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        keys = [one.key for one in await items.port.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)]
        cosmos_server.fail_next(1, 503, method="PATCH")
        with pytest.raises(Uncertain):
            await items.port.renew(keys, 60.0, LIMIT_S)
        assert set(await items.port.renew(keys, 60.0, LIMIT_S)) == set(keys)
        await items.close()


async def test_a_batch_of_which_a_part_was_put_off_too_long_is_not_said_to_be_unexecuted(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 3)
        keys = [one.key for one in await items.port.next_for_state("NEW", 3, "ada", 60.0, LIMIT_S)]
        cosmos_server.fail_next(1, 429, retry_ms=60_000, method="PATCH")
        with pytest.raises(Uncertain) as caught:
            await items.port.renew(keys, 60.0, LIMIT_S)
        assert caught.value.code == "half_done"
        await items.close()


async def test_of_a_batch_in_which_one_got_no_answer_the_others_are_handed_out(
    opened: Opened, cosmos_server: CosmosServer
) -> None:
    async with opened() as backend:
        items = backend.items("negotiation")
        await filled(items, 5)
        cosmos_server.fail_next(1, 503, method="PUT")
        assert len(await items.port.next_for_state("NEW", 5, "ada", 60.0, LIMIT_S)) == 4
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
        taken = await items.port.next_for_state("NEW", 5, "ada", 60.0, LIMIT_S)
        assert [one.id for one in taken] == [f"item {n}" for n in range(5)]
        assert len(await items.port.find(None, 100, LIMIT_S)) == 8
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
    assert items.script() == backend.schema.script()
    assert Wire(parse(cosmos_url)).address.container == "fencehold"
