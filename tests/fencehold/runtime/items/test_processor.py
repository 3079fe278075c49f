"""`items.process(state, handler)`: batches, bounded concurrency, failures that do not spin, and a graceful stop."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.items.conftest import KIND, OpenedItems
from tests.fencehold.runtime.items.scene import error_of, free
from tests.fencehold.runtime.outbox.scene import LIMIT_S, eventually


class Gate:
    """A handler that counts who is inside and lets them out when told; then moves them to B."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.done: list[str] = []
        self.cancelled: list[str] = []
        self.opened = asyncio.Event()
        self.news = asyncio.Event()

    async def __call__(self, item: fencehold.Item) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.news.set()
        try:
            await self.opened.wait()
            await item.save(state="B")
            self.done.append(item.id)
        except asyncio.CancelledError:
            self.cancelled.append(item.id)
            raise
        finally:
            self.inside -= 1
            self.news.set()

    async def has(self, inside: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.inside < inside:
                self.news.clear()
                await self.news.wait()


async def fill(items: fencehold.Items, count: int) -> None:
    for n in range(count):
        await items.put(f"{n:03}", state="A", document=n)


async def in_state(items: fencehold.Items, state: str, count: int) -> None:
    async def is_so() -> bool:
        return len(await items.find(state, limit=1000)) == count

    await eventually(is_so)


@asynccontextmanager
async def running(*processors: fencehold.ItemProcessor) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(processor.run()) for processor in processors]
    try:
        yield
    finally:
        for processor in processors:
            processor.stop()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*tasks)


async def test_no_more_are_leased_than_can_be_started(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, heard):
        await fill(items, 30)
        gate = Gate()
        async with running(items.process("A", gate, concurrency=4, batch=3, poll_every="20ms")):
            await gate.has(4)
            await heard.once("items_leased", times=2)
            held = [view for view in await items.find("A", limit=100) if view.holder_id is not None]
            assert len(held) == gate.most == 4
            gate.opened.set()
            await in_state(items, "B", 30)
        assert (gate.most, sorted(gate.done)) == (4, [f"{n:03}" for n in range(30)])
        assert {view.holder_id for view in await items.find("B", limit=100)} == {None}


async def test_three_processors_move_every_item_once(url: str) -> None:
    seen: list[str] = []

    async def handle(item: fencehold.Item) -> None:
        seen.append(item.id)
        await item.save(state="B", document=[item.document])

    async with fencehold.connect(url) as store:
        await store.init()
        holders = [store.items(KIND) for _ in range(3)]
        await fill(holders[0], 60)
        async with running(*(items.process("A", handle, poll_every="20ms") for items in holders)):
            await in_state(holders[0], "B", 60)
        assert len(seen) == 60


@pytest.mark.fault("callbacks", "items")
async def test_a_handler_that_raises_frees_its_item_at_once_and_is_not_called_in_a_hot_loop(
    url: str, opened: OpenedItems
) -> None:
    async with opened(url) as (items, heard):
        await fill(items, 8)
        calls: list[str] = []

        async def handle(item: fencehold.Item) -> None:
            calls.append(item.id)
            if item.id < "003":
                raise ValueError(f"postgresql://u:secret@h/{item.id}")
            await item.save(state="B")

        async with running(items.process("A", handle, concurrency=2, poll_every="200ms")):
            await in_state(items, "B", 5)  # those that fail are the oldest, and hide nobody
            await heard.once("item_failed", times=5)
            told = heard.all("item_failed", id="000")
            assert "ValueError" in told[0]["error"]
            assert "secret" not in repr(told)
            assert "raise ValueError" in told[0]["traceback"], "where it failed"
            assert [fact["rest_s"] for fact in told] == sorted(fact["rest_s"] for fact in told)
            others = await eventually(lambda: other_gets(url, "000"))
            assert others.id == "000"
        assert calls.count("000") <= 8
        assert all(view.holder_id in (None, others.holder_id) for view in await items.find("A"))


async def test_items_that_fail_hide_nobody_and_are_not_leased_while_they_rest(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, heard):
        await fill(items, 220)
        await items.put("good", state="A", document=None)

        async def handle(item: fencehold.Item) -> None:
            if item.id != "good":
                raise ValueError(item.id)
            await item.save(state="B")

        async with running(items.process("A", handle, concurrency=20, poll_every="1h")):
            await in_state(items, "B", 1)
        leased = sum(fact["leased"] for fact in heard.all("items_leased"))
        begun = len(heard.all("item_failed")) + len(heard.all("item_processed")) + len(heard.all("item_called_off"))
        assert (leased, begun) == (221, 221), "each once, and none only to be given back"


@pytest.mark.long
@pytest.mark.limit(180)
async def test_a_young_item_is_found_behind_more_that_fail_than_one_statement_skips(
    memory: str, opened: OpenedItems
) -> None:
    async with opened(memory) as (items, heard):
        await asyncio.gather(*(items.put(f"{n:05}", state="A", document=None) for n in range(10_400)))

        async def handle(item: fencehold.Item) -> None:
            if item.id != "young":
                raise ValueError(item.id)
            await item.save(state="B")

        processor = items.process("A", handle, concurrency=200, batch=200, poll_every="1h")
        async with running(processor):
            await heard.once("item_failed", times=10_400, limit_s=120)
            await items.put("young", state="A", document=None)
            await asked_again(processor, items)


async def test_what_rests_on_several_pages_hides_nobody_and_each_is_leased_once(
    url: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencehold.runtime.items.rests.PAGE", 20)
    async with opened(url) as (items, heard):
        await fill(items, 90)

        async def handle(item: fencehold.Item) -> None:
            if item.id != "young":
                raise ValueError(item.id)
            await item.save(state="B")

        processor = items.process("A", handle, concurrency=10, poll_every="1h")
        async with running(processor):
            await heard.once("item_failed", times=90)
            await items.put("young", state="A", document=None)
            await asked_again(processor, items)
        assert len(heard.all("item_failed")) == 90
        assert sum(fact["leased"] for fact in heard.all("items_leased")) == 91


async def asked_again(processor: fencehold.ItemProcessor, items: fencehold.Items) -> None:
    """Poll again and again until one item is in B: a turn that is under way forgets that it was asked for another."""

    async def is_found() -> bool:
        processor._more = True
        processor._wake.set()
        return len(await items.find("B")) == 1

    await eventually(is_found)


async def other_gets(url: str, item_id: str) -> Any:
    """Whether somebody else may have it, between two tries of the processor."""
    async with fencehold.connect(url) as store:
        try:
            return await store.items(KIND).acquire(item_id)
        except fencehold.AlreadyLeased:
            return None


async def test_an_item_left_in_its_state_waits_for_the_next_poll(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, heard):
        await fill(items, 1)
        polls = asyncio.Event()

        async def handle(item: fencehold.Item) -> None:
            polls.set()

        async with running(items.process("A", handle, poll_every="1h")):
            await heard.once("item_processed")
            await asyncio.sleep(0.05)
        assert len(heard.all("item_processed")) == 1


@pytest.mark.fault("shutdown", "items", "any")
async def test_stopping_takes_no_more_and_lets_handlers_finish(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, heard):
        await fill(items, 10)
        gate = Gate()
        processor = items.process("A", gate, concurrency=3, poll_every="10ms")
        task = asyncio.create_task(processor.run())
        await gate.has(3)
        processor.stop()
        await heard.once("processor_stopping")
        gate.opened.set()
        await task
        assert (len(gate.done), gate.cancelled, processor.in_hand) == (3, [], 0)
        assert len(await items.find("A")) == 7
        again = await error_of(processor.run())
        assert isinstance(again, fencehold.ConfigurationError)
        assert again.code == "already_run"


@pytest.mark.fault("shutdown", "items")
async def test_handlers_that_outstay_the_shutdown_timeout_are_cancelled_and_their_items_freed(
    url: str, opened: OpenedItems
) -> None:
    async with opened(url) as (items, heard):
        await fill(items, 3)
        gate = Gate()
        processor = items.process("A", gate, shutdown_timeout="200ms")
        task = asyncio.create_task(processor.run())
        await gate.has(3)
        processor.stop()
        await task
        assert (gate.done, len(gate.cancelled)) == ([], 3)
        assert len(await items.next_for_state("A")) == 3
        assert len(heard.all("item_called_off")) == 3
        assert not heard.all("item_failed") + heard.all("item_lost")


async def test_a_cancelled_run_frees_what_it_held(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, _):
        await fill(items, 3)
        gate = Gate()
        task = asyncio.create_task(items.process("A", gate).run())
        await gate.has(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await items.next_for_state("A")) == 3


async def test_closing_the_store_stops_its_processors(memory: str) -> None:
    store = await fencehold.connect(memory).open()
    items, gate = store.items(KIND), Gate()
    await fill(items, 2)
    task = asyncio.create_task(items.process("A", gate).run())
    await gate.has(2)
    gate.opened.set()
    await store.close()
    await task
    assert sorted(gate.done) == ["000", "001"]


@pytest.mark.fault("callbacks", "items", "any")
async def test_a_handler_that_takes_too_long_loses_its_item(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, lease="5s", heartbeat_every="50ms") as (items, heard):
        await fill(items, 1)
        gate = Gate()
        async with running(items.process("A", gate, max_processing="100ms", poll_every="10s")):
            assert (await heard.once("item_lost"))["reason"] == "max_processing"
            await eventually(lambda: free(items, "000"))
        assert gate.cancelled == ["000"]


async def test_a_plain_function_runs_on_a_thread_and_saves_from_there(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        await fill(items, 5)
        threads: set[str] = set()

        def handle(item: fencehold.Item) -> None:
            threads.add(threading.current_thread().name)
            item.save_now(state="B", document="by a thread")

        async with running(items.process("A", handle, concurrency=2, poll_every="20ms")):
            await in_state(items, "B", 5)
        assert all(name.startswith("fencehold-handler") for name in threads)


async def test_save_now_on_the_event_loop_is_an_error_and_not_a_hang(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, _):
        await fill(items, 1)
        async with await items.acquire("000") as item:
            with pytest.raises(fencehold.ConfigurationError) as wrong:
                item.save_now(state="B")
        assert wrong.value.code == "on_loop"


async def test_a_store_that_is_away_is_waited_for(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    inner, away = MemoryItemPort.next_for_state, asyncio.Event()
    away.set()

    async def sometimes(*args: Any) -> Any:
        if away.is_set():
            raise fencehold.Unavailable("the database is away")
        return await inner(*args)

    monkeypatch.setattr(MemoryItemPort, "next_for_state", sometimes)
    async with opened(memory) as (items, heard):
        await fill(items, 3)
        gate = Gate()
        gate.opened.set()
        async with running(items.process("A", gate, poll_every="20ms")):
            await heard.once("processor_store_failed", times=3)
            away.clear()
            await in_state(items, "B", 3)


def yields(item: fencehold.Item) -> Iterator[None]:
    yield


async def yields_later(item: fencehold.Item) -> AsyncIterator[None]:
    yield


class Yields:
    def __call__(self, item: fencehold.Item) -> Iterator[None]:
        yield


async def returns_one(item: fencehold.Item) -> Any:
    return yields_later(item)


def returns_one_now(item: fencehold.Item) -> Any:
    return yields(item)


def returns_one_for_later(item: fencehold.Item) -> Any:
    return yields_later(item)


@pytest.mark.parametrize("handler", [returns_one_now, returns_one_for_later, returns_one])
async def test_a_handler_that_returns_a_generator_has_failed(memory: str, opened: OpenedItems, handler: Any) -> None:
    async with opened(memory) as (items, heard):
        await fill(items, 1)
        async with running(items.process("A", handler)):
            assert "nothing of it was run" in (await heard.once("item_failed"))["error"]
        assert not heard.all("item_processed")


async def forgets_await(item: fencehold.Item) -> Any:
    return item.save(state="B")


async def test_a_handler_that_forgets_to_await_its_save_has_failed(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, heard):
        await fill(items, 1)
        async with running(items.process("A", forgets_await)):
            assert "without awaiting it, and nothing of it was run" in (await heard.once("item_failed"))["error"]
        assert not heard.all("item_processed")


async def test_settings_that_cannot_work_are_one_error(memory: str) -> None:
    async with fencehold.connect(memory) as store:
        items = store.items(KIND, lease="1s")
        with pytest.raises(fencehold.ConfigurationError) as wrong:
            items.process("A", print, concurrency=0, batch=True, poll_every=-1, shutdown_timeout="2s")
        for word in ("concurrency", "batch", "poll_every", "shutdown_timeout"):
            assert word in str(wrong.value)
        for handler in (None, {"A": print}, "handle", yields, yields_later, functools.partial(yields), Yields()):
            with pytest.raises(fencehold.ConfigurationError) as bad:
                items.process("A", handler)  # type: ignore[arg-type]
            assert bad.value.code == "bad_handler"
