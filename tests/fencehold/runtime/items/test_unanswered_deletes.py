"""A delete that gets no answer: perhaps the item is gone, and another in its place is somebody else's."""

import asyncio
from typing import Any

import pytest

import fencehold
from fencehold.backends.memory.items import MemoryItemPort
from tests.fencehold.runtime.items.conftest import OpenedItems
from tests.fencehold.runtime.items.scene import error_of

#: Nobody notices a loss by a renewal in the time of a test.
LONG: Any = {"lease": "60s"}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes are executed; none is answered."""
    delete = MemoryItemPort.delete

    async def executed(*args: Any) -> None:
        await delete(*args)
        raise fencehold.Uncertain("no answer")

    monkeypatch.setattr(MemoryItemPort, "delete", executed)


@pytest.mark.usefixtures("silent")
async def test_the_lease_is_over_here_before_another_can_hold_what_took_the_place(
    memory: str, opened: OpenedItems
) -> None:
    async with opened(memory, **LONG) as (items, heard), opened(memory) as (others, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        assert isinstance(await error_of(items.delete(item)), fencehold.Uncertain)
        await others.put("n", state="B", document=2)
        async with await others.acquire("n") as theirs:
            assert (item.is_valid, theirs.is_valid) == (False, True)
        assert heard.all("item_lost", reason="delete_unanswered")


@pytest.mark.usefixtures("silent")
async def test_a_body_that_goes_on_without_the_answer_is_stopped(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, **LONG) as (items, _):
        await items.put("n", state="A", document=1)

        async def work() -> None:
            async with await items.acquire("n") as item:
                assert isinstance(await error_of(items.delete(item)), fencehold.Uncertain)
                await asyncio.Event().wait()

        assert isinstance(await error_of(work()), fencehold.LeaseLost)


async def test_whoever_is_cancelled_before_the_answer_holds_nothing_either(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def unanswered(*_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryItemPort, "delete", unanswered)
    async with opened(memory, **LONG) as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        deleting = asyncio.ensure_future(items.delete(item))
        await asked.wait()
        deleting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deleting
        assert not item.is_valid


async def test_a_delete_that_was_not_executed_leaves_the_lease_as_it_was(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise fencehold.Unavailable("the database is away")

    monkeypatch.setattr(MemoryItemPort, "delete", away)
    async with opened(memory, **LONG) as (items, _):
        await items.put("n", state="A", document=1)
        async with await items.acquire("n") as item:
            assert isinstance(await error_of(items.delete(item)), fencehold.Unavailable)
            assert item.is_valid
            await item.save(state="B")
