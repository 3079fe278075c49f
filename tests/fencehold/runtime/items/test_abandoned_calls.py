"""A call whose caller was cancelled goes on to its end, and nobody is bothered with what became of it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencehold.backends.memory.items import MemoryItemPort
from fencehold.runtime.items.item import Item
from fencehold.runtime.items.items import Items
from tests.fencehold.runtime.abandoned import complaints_about
from tests.fencehold.runtime.items.conftest import OpenedItems

CALLS: dict[str, Callable[[Items, Item], Awaitable[Any]]] = {
    "put": lambda items, item: items.put("n", state="A", document=2),
    "save": lambda items, item: item.save(document=2),
    "renew": lambda items, item: items.renew(item),
    "break_leases": lambda items, item: items.break_lease(item),
    "delete": lambda items, item: items.delete(item),
}


@pytest.mark.parametrize("verb", CALLS)
async def test_the_error_of_a_call_that_nobody_waits_for_is_not_logged_as_forgotten(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async with opened(memory, lease="60s") as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        assert await complaints_about(lambda: CALLS[verb](items, item), monkeypatch, MemoryItemPort, verb) == []
