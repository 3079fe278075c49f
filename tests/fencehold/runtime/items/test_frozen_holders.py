"""Holders that stand still past their lease, and processors that die: real processes on real databases."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import fencehold
from tests.across_packages.processes import Process
from tests.fencehold.runtime.items.conftest import OpenedItems
from tests.fencehold.runtime.items.scene import error_of, free
from tests.fencehold.runtime.outbox.scene import enough_s, eventually
from tests.servers.cosmos import CosmosServer


class HolderProcess(Process):
    def __init__(self, url: str, does: str, *options: str) -> None:
        self._launch(does, "tests.fencehold.runtime.items.holder", url, does, *options)


@contextmanager
def holder(url: str, does: str, *options: str) -> Iterator[HolderProcess]:
    process = HolderProcess(url, does, *options)
    try:
        yield process
    finally:
        process.kill()


def answer_to(process: HolderProcess, word: str) -> str:
    """The code it was refused with, or what it got."""
    process.say(word)
    told = process.wait_for("answered", verb=word)
    return str(told["code"] or told["answer"])


@pytest.mark.fault("freeze", "items")
async def test_a_holder_frozen_past_its_lease_can_neither_save_nor_delete_nor_renew_nor_break(
    url: str, opened: OpenedItems
) -> None:
    await is_powerless_after_a_freeze(url, opened, f"{enough_s(url, 0.7)}s")


async def test_nor_can_it_on_cosmos_db(cosmos_server: CosmosServer, opened: OpenedItems) -> None:
    await is_powerless_after_a_freeze(cosmos_server.url(), opened, "3s")


async def is_powerless_after_a_freeze(url: str, opened: OpenedItems, lease: str) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        with holder(url, "hold", "--lease", lease) as frozen:
            told = await asyncio.to_thread(frozen.wait_for, "acquired")
            frozen.freeze(url)
            taken = await eventually(lambda: _taken(items))
            frozen.thaw()
            answers = [await asyncio.to_thread(answer_to, frozen, word) for word in ("save", "delete", "renew")]
            assert answers == ["lease_lost", "lease_lost", "0"]
            assert await asyncio.to_thread(answer_to, frozen, "break") == "already_leased"
        assert taken.token > told["token"]
        await taken.save(document=2)
        found = await items.get("n")
        assert found is not None
        assert (found.state, found.document, found.holder_id) == ("A", 2, items.holder_id)


async def _taken(items: fencehold.Items) -> fencehold.Item | None:
    try:
        return await items.acquire("n")
    except fencehold.AlreadyLeased:
        return None


async def test_a_holder_frozen_past_its_lease_cannot_save_even_if_nobody_took_over(
    url: str, opened: OpenedItems
) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        with holder(url, "hold", "--lease", f"{enough_s(url, 0.7)}s") as frozen:
            await asyncio.to_thread(frozen.wait_for, "acquired")
            frozen.freeze(url)
            await eventually(lambda: free(items))
            frozen.thaw()
            answers = [await asyncio.to_thread(answer_to, frozen, word) for word in ("save", "delete", "renew")]
            assert answers == ["lease_lost", "lease_lost", "0"]
        found = await items.get("n")
        assert found is not None
        assert (found.state, found.document) == ("A", 1)


async def test_the_store_itself_refuses_a_holder_that_does_not_know_its_time_is_over(
    url: str, opened: OpenedItems
) -> None:
    """As if its own clock had stood still: everything is sent, and nothing is written."""
    async with opened(url, lease=enough_s(url, 0.6)) as (items, _), opened(url) as (others, _):
        await items.put("n", state="A", document=1)
        stale = [await items.acquire("n")]
        stale[0]._lease.deadline_s += 1000
        await eventually(lambda: free(items))
        for taken_over in (False, True):
            if taken_over:
                await others.acquire("n")
            held: Any = stale[0]
            assert held.is_valid
            assert isinstance(await error_of(held.save(state="STALE")), fencehold.LeaseLost)
            assert not held.is_valid
            held._lease.ended_because = ""
            assert isinstance(await error_of(items.delete(held)), fencehold.LeaseLost)
            held._lease.ended_because = ""
            assert await items.renew([held]) == []
            held._lease.ended_because = ""
        found = await items.get("n")
        assert found is not None
        assert (found.state, found.holder_id) == ("A", others.holder_id)


@pytest.mark.fault("kill", "items")
async def test_a_processor_killed_half_way_leaves_its_item_to_another(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        for n in "ab":
            await items.put(n, state="A", document=[])
        with holder(url, "process", "--lease", f"{enough_s(url, 1.0)}s") as doomed:
            assert (await asyncio.to_thread(doomed.wait_for, "began"))["id"] == "a"
            doomed.say("go")
            await asyncio.to_thread(doomed.wait_for, "began", id="b")
            doomed.kill()
        begun: list[str] = []

        async def handle(item: fencehold.Item) -> None:
            begun.append(item.id)
            await item.save(state="B", document=[*item.document, "moved"])
            processor.stop()

        processor = items.process("A", handle, poll_every="50ms")
        async with asyncio.timeout(20):
            await processor.run()
        assert begun == ["b"]
        assert [(view.id, view.document) for view in await items.find("B")] == [("a", ["moved"]), ("b", ["moved"])]
