"""A handler that returns without having saved its item is warned of: it would be called for ever."""

import fencehold
from tests.fencehold.runtime.items.conftest import KIND, OpenedItems
from tests.fencehold.runtime.items.test_processor import fill, running


async def test_a_handler_that_saves_nothing_is_warned_of_once_a_minute(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, heard):
        await fill(items, 1)

        async def handle(item: fencehold.Item) -> None:
            return

        async with running(items.process("A", handle, poll_every="10ms")):
            await heard.once("item_processed", times=4)
        [warned] = heard.all("item_unchanged")
        assert (warned["kind"], warned["state"], warned["id"]) == (KIND, "A", "000")
        assert "without saving" in warned["detail"]


async def test_a_handler_that_saves_without_moving_is_not_warned_of(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, heard):
        await fill(items, 1)

        async def handle(item: fencehold.Item) -> None:
            await item.save(document={"seen": True})

        async with running(items.process("A", handle, poll_every="10ms")):
            await heard.once("item_processed", times=2)
        assert not heard.all("item_unchanged")
