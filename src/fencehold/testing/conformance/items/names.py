"""Tests that ids, kinds, states, holders and documents come back unchanged and are never mixed up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencehold.model import names
from fencehold.model.items.rules import ItemKey
from fencehold.ports.items import ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.items.pair import EVERYTHING, ItemPair, ItemTests, as_json, row
from fencehold.testing.conformance.leases.names import AWKWARD, LOOK_ALIKES
from fencehold.testing.conformance.suite import LEASE_S, START, needs
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness

ODD = (*LOOK_ALIKES, *AWKWARD)
SOME_ODD = ("Nightly", "nightly", "nightly.", "caf\u00e9", "cafe\u0301", "a/b", "a\\b", "a?b", "a#b", "%", "'", '"')
BLANKS = ("a", "a ", "a  ", " a")
DOCUMENTS: tuple[Any, ...] = (
    r"\u0000", {r"\u0000": r"a\\u0000\\\u0000"},
    None, {}, [], "", " ", 0, 0.1, -1.5e300, 2**53 + 1, 2**70, True, False, "x" * 300_000, {"": {"": [[]]}},
    {"a": {"b": [1, None, "\u00e9\U0001f98a\u2028'\"\\%s:x\n\t"]}}, [{"id": "7", "_ts": 1, "_etag": "x", "ttl": 1}],
    {"id": "not the item's", "state": "X", "token": 9, "kind": None}
)  # fmt: skip


class ItemNames(ItemTests):
    async def test_ids_are_kept_apart_and_come_back_unchanged(self, items: ItemStore) -> None:
        for name in ODD:
            row(await items.port.put(NewItem(names.item_id(name), "NEW", as_json(name), "ada"), CALL_LIMIT_S))
        taken = await items.leases.next_for_state("NEW", EVERYTHING, "ada", LEASE_S, CALL_LIMIT_S)
        assert {one.id: document(one) for one in taken} == {name: name for name in ODD}
        assert len(taken) == len(ODD)
        keys = [one.key for one in taken]
        assert set(await items.leases.renew(keys, LEASE_S, CALL_LIMIT_S)) == set(keys)
        assert {i: document(one) for i, one in (await items.port.get(ODD, CALL_LIMIT_S)).items()} == {n: n for n in ODD}
        assert await items.leases.break_leases(keys[::2], CALL_LIMIT_S) == {}
        left = await items.leases.next_for_state("NEW", EVERYTHING, "bob", LEASE_S, CALL_LIMIT_S)
        assert {one.id for one in left} == {key.id for key in keys[::2]}

    async def test_states_are_kept_apart(self, items: ItemStore) -> None:
        for number, name in enumerate(ODD):
            row(await items.port.put(NewItem(str(number), names.item_state(name), "1", "ada"), CALL_LIMIT_S))
        for number, name in list(enumerate(ODD))[::4]:
            assert [one.id for one in await items.admin.find(name, EVERYTHING, CALL_LIMIT_S)] == [str(number)]
            [taken] = await items.leases.next_for_state(name, EVERYTHING, "ada", LEASE_S, CALL_LIMIT_S)
            assert (taken.id, taken.state) == (str(number), name)

    async def test_holders_are_kept_apart(self, pair: ItemPair) -> None:
        key = await pair.leased("deal", holder=ODD[0])
        for other in ODD[1::3]:
            await pair.acquire("deal", names.holder_id(other))
            await pair.save(ItemKey("deal", other, key.token), "X")
            await pair.break_leases(ItemKey("deal", other, 0))
        row(await pair.save(key, "SENT"))

    async def test_kinds_are_kept_apart(self, harness: Harness) -> None:
        await harness.set_clock(START)
        stores = [await harness.items(names.item_kind(kind), init=n == 0) for n, kind in enumerate(SOME_ODD)]
        for store, kind in zip(stores, SOME_ODD, strict=True):
            row(await store.port.put(NewItem("7", "NEW", as_json(kind), "ada"), CALL_LIMIT_S))
        for store, kind in zip(stores, SOME_ODD, strict=True):
            [found] = await store.admin.find(None, EVERYTHING, CALL_LIMIT_S)
            assert document(found) == kind
            [taken] = await store.leases.next_for_state("NEW", EVERYTHING, "ada", LEASE_S, CALL_LIMIT_S)
            assert document(taken) == kind

    async def test_a_blank_at_either_end_is_a_difference(self, pair: ItemPair) -> None:
        """The library refuses such names.

        But who calls the port itself must not get the item of another name either.
        """
        for name in BLANKS:
            await pair.put(name, name, name)
        await pair.check(BLANKS, "blanks")
        for name in BLANKS:
            assert await pair.next(name, holder=name) == [name]
        for name in BLANKS[1:]:
            await pair.break_leases(ItemKey("a", name, 0))

    @pytest.mark.parametrize("letter", ["x", "\u5341", "\U0001f98a"], ids=["ascii", "cjk", "emoji"])
    async def test_the_longest_names_fit(self, harness: Harness, letter: str) -> None:
        kind = names.item_kind(letter * names.ITEM_KIND_CHARS_MAX)
        item_id = names.item_id(letter * names.ITEM_ID_CHARS_MAX)
        shorter = letter * (names.ITEM_ID_CHARS_MAX - 1)
        state = names.item_state(letter * names.ITEM_STATE_CHARS_MAX)
        holder = names.holder_id(letter * names.HOLDER_ID_CHARS_MAX)
        pair = await ItemPair.of(harness, kind=kind)
        await pair.put(item_id, state, 1)
        await pair.put(shorter, "NEW", 2)
        assert await pair.next(state, holder=holder) == [item_id]
        await pair.save(pair.key(item_id), state, document=3)
        await pair.check([shorter], "its neighbour")
        await pair.delete(pair.key(item_id))
        assert await pair.find() == [shorter]

    async def test_documents_come_back_as_they_were_put(self, pair: ItemPair) -> None:
        for number, value in enumerate(DOCUMENTS):
            await pair.put(str(number), "NEW", value)
            await pair.save(await pair.take(str(number)), document=[value])
            await pair.save(pair.key(str(number)), "SENT", document=value)
        found = await pair.client.admin.find("SENT", EVERYTHING, CALL_LIMIT_S)
        assert {int(one.id): document(one) for one in found} == dict(enumerate(DOCUMENTS))


@needs(Can.ITEM_KINDS)
class ItemKinds(ItemTests):
    async def test_every_kind_that_has_an_item_is_named_once_and_no_other(self, harness: Harness) -> None:
        await harness.set_clock(START)
        empty = await harness.items("empty")
        assert await empty.admin.kinds(CALL_LIMIT_S) == []
        for kind in SOME_ODD:
            store = await harness.items(names.item_kind(kind), init=False)
            for item_id in ("7", "8"):
                row(await store.port.put(NewItem(item_id, "NEW", as_json(kind), "ada"), CALL_LIMIT_S))
        assert await empty.admin.kinds(CALL_LIMIT_S) == sorted(SOME_ODD)


def document(one: ItemRow) -> Any:
    return json.loads(one.document_json)
