"""A grant whose answer comes late, after this holder has had the item anew and given it back."""

import asyncio
from typing import Any

import pytest

from fencehold.backends.memory.items import MemoryItemPort
from fencehold.runtime.items.context import OpenAsks
from tests.fencehold.runtime.items.conftest import OpenedItems

PLACE = ("kind", "holder", "n")


async def test_a_lease_that_was_replaced_before_its_answer_came_is_not_valid_any_more(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taken, answer = MemoryItemPort.next_for_state, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any) -> Any:
        rows = await take(*args)
        taken.set()
        await answer.wait()
        return rows

    monkeypatch.setattr(MemoryItemPort, "next_for_state", slowly)
    async with opened(memory, lease="60s") as (items, _), opened(memory) as (others, _):
        await items.put("n", state="A", document=1)
        taking = asyncio.ensure_future(items.next_for_state("A"))
        await taken.wait()
        await items.break_lease(await items.acquire("n"))
        async with await others.acquire("n") as theirs:
            answer.set()
            assert await taking == []
            await theirs.save(state="B")


def test_it_is_forgotten_once_no_request_is_open_that_could_be_about_it() -> None:
    asks = OpenAsks()
    asks.ended(PLACE, 5)
    assert not asks.has_ended(PLACE, 4), "nobody asks"
    with asks.one():
        asks.ended(PLACE, 5)
        asks.ended(PLACE, 3)
        assert asks.has_ended(PLACE, 4)
        assert not asks.has_ended(PLACE, 6)
        with asks.one():
            pass
        assert asks.has_ended(PLACE, 4), "the older request is open still"
    assert not asks.has_ended(PLACE, 4)
