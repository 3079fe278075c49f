"""Listing the kinds of items, for stores that can."""

from __future__ import annotations

from fencehold.model import names
from fencehold.ports.items import NewItem
from fencehold.testing.conformance.items.names import SOME_ODD
from fencehold.testing.conformance.items.pair import ItemTests, as_json, row
from fencehold.testing.conformance.needs import needs
from fencehold.testing.conformance.suite import START
from fencehold.testing.harness import CALL_LIMIT_S, Can, Harness


@needs(Can.ITEM_KINDS)
class ItemKinds(ItemTests):
    async def test_every_kind_that_has_an_item_is_named_once_and_no_other(self, harness: Harness) -> None:
        await harness.set_clock(START)
        empty = await harness.items("empty")
        assert await empty.port.kinds(CALL_LIMIT_S) == []
        for kind in SOME_ODD:
            store = await harness.items(names.item_kind(kind), init=False)
            for item_id in ("7", "8"):
                row(await store.port.put(NewItem(item_id, "NEW", as_json(kind), "ada"), CALL_LIMIT_S))
        assert await empty.port.kinds(CALL_LIMIT_S) == sorted(SOME_ODD)
