"""One holder in one process: tasks, threads and processors that share it, an operator's break, a forked child."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest

import fencehold
import fencehold.sync
from fencehold.backends.memory.items import MemoryItemPort
from fencehold.runtime.items import item as item_module
from tests.fencehold.runtime.items.conftest import KIND, OpenedItems
from tests.fencehold.runtime.items.scene import error_of
from tests.fencehold.runtime.items.test_processor import fill, running
from tests.fencehold.runtime.outbox.scene import LIMIT_S, eventually

BRISK = {"lease": "5s", "heartbeat_every": "50ms"}


class Held:
    """One call of a port's method, kept from its start, or from giving its answer, until told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verb: str, *, is_done_first: bool) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        inner = getattr(MemoryItemPort, verb)

        async def held(*args: Any) -> Any:
            answer = await inner(*args) if is_done_first else None
            self.begun.set()
            await self.go.wait()
            return answer if is_done_first else await inner(*args)

        monkeypatch.setattr(MemoryItemPort, verb, held)


async def test_an_item_that_an_operator_freed_is_not_taken_again_beside_its_handler(
    url: str, opened: OpenedItems
) -> None:
    async with opened(url, **BRISK) as (items, heard):
        await fill(items, 1)
        calls, go = list[int](), threading.Event()

        def handle(item: fencehold.Item) -> None:
            calls.append(item.token)
            go.wait(LIMIT_S)

        both = [items.process("A", handle, concurrency=2, poll_every="20ms") for _ in range(2)]
        async with running(*both):
            seen = await eventually(lambda: held(items, "000"))
            await eventually(lambda: asyncio.sleep(0, calls))
            await items.break_seen(seen, by="ops")
            assert (await heard.once("item_lost"))["reason"] == "lease_lost"
            await heard.once("items_leased", times=len(heard.all("items_leased")) + 6)
            assert calls == [seen.token]
            assert len(heard.all("item_lost")) == 1
            go.set()


async def held(items: fencehold.Items, item_id: str) -> Any:
    found = await items.get(item_id)
    return found if found is not None and found.holder_id is not None else None


async def test_a_save_after_an_operators_break_is_refused_and_told_once(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, heard):
        await fill(items, 1)
        item = await items.acquire("000")
        seen = await items.get("000")
        assert seen is not None

        async def work() -> None:
            async with item:
                await items.break_seen(seen, by="ops")
                await item.save(state="B")

        assert isinstance(await error_of(work()), fencehold.LeaseLost)
        assert isinstance(await error_of(item.save(state="B")), fencehold.LeaseLost)
        assert [fact["reason"] for fact in heard.all("item_lost")] == ["lease_lost"]


async def test_another_task_of_the_same_holder_does_not_take_it_from_a_running_body(
    url: str, opened: OpenedItems
) -> None:
    async with opened(url) as (items, heard):
        await fill(items, 1)
        forgotten = await items.acquire("000")
        async with await items.acquire("000") as item:
            refused = await error_of(items.acquire("000"))
            assert isinstance(refused, fencehold.AlreadyLeased)
            assert (refused.holder_id, refused.expires_at) == (items.holder_id, item.expires_at)
            assert "this very process" in refused.hint
            await item.save(state="B")
        assert not forgotten.is_valid
        assert not heard.all("item_lost")
        assert (await items.acquire("000")).state == "B"


async def test_what_a_handler_has_in_hand_is_not_acquired_beside_it(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, _):
        await fill(items, 1)
        inside, go = asyncio.Event(), asyncio.Event()

        async def handle(item: fencehold.Item) -> None:
            inside.set()
            await go.wait()
            await item.save(state="B")

        async with running(items.process("A", handle)):
            await inside.wait()
            assert isinstance(await error_of(items.acquire("000")), fencehold.AlreadyLeased)
            go.set()
            await eventually(lambda: items.find("B"))


async def test_a_body_may_delete_its_item_and_acquire_it_anew(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, _):
        await fill(items, 1)
        async with await items.acquire("000") as item:
            await items.delete(item)
            await items.put("000", state="A", document=2)
            async with await items.acquire("000") as again:
                await again.save(state="B")


async def test_who_enters_while_another_task_acquires_anew_is_told_before_the_body(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(memory) as (items, _):
        await fill(items, 1)
        first = await items.acquire("000")
        gate = Held(monkeypatch, "acquire", is_done_first=False)
        later = asyncio.create_task(items.acquire("000"))
        await gate.begun.wait()
        third = await error_of(items.acquire("000"))
        assert isinstance(third, fencehold.AlreadyLeased)
        with pytest.raises(fencehold.LeaseLost):
            async with first:
                raise AssertionError("the body must not run")
        gate.go.set()
        async with await later as item:
            await item.save(state="B")


async def test_an_older_lease_whose_answer_comes_later_ends_nothing(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(memory) as (items, _):
        await fill(items, 1)
        gate = Held(monkeypatch, "next_for_state", is_done_first=True)
        earlier = asyncio.create_task(items.next_for_state("A"))
        await gate.begun.wait()
        async with await items.acquire("000") as item:
            gate.go.set()
            assert await earlier == []
            await item.save(state="B")


def test_threads_that_share_one_holder_lose_no_write(memory: str) -> None:
    rounds, errors, done = 30, list[str](), list[int]()
    with fencehold.sync.connect(memory) as store:
        items = store.items(KIND)
        items.put("n", state="A", document=0)

        def count() -> None:
            for _ in range(rounds):
                try:
                    with items.acquire("n") as item:
                        item.save(document=item.document + 1)
                        done.append(item.token)
                except fencehold.AlreadyLeased as error:
                    errors.append(error.holder_id)
                except fencehold.LeaseLost:
                    errors.append("before its body began")

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        found = items.get("n")
        assert found is not None
        assert found.document == len(done)
        assert len(done) + len(errors) == 4 * rounds


@pytest.mark.fault("fork", "items")
async def test_a_forked_child_saves_nothing_and_closes_at_once(url: str) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        items = store.items(KIND)
        await fill(items, 1)
        async with await items.acquire("000") as item:
            child = os.fork()
            if child == 0:
                as_a_child(store, item)
            ended = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(ended[1]) == 0
            await item.save(state="B")


def as_a_child(store: fencehold.Store, item: fencehold.Item) -> NoReturn:
    """Exits with 0 if it is refused and can close; a child that hangs is ended by the alarm, whoever had set one."""
    code = 1
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)
    try:
        item.save_now(state="CHILD")
    except fencehold.LeaseLost:
        asyncio.run(store.close())
        code = 0
    finally:
        os._exit(code)


async def test_save_now_gives_up_when_the_event_loop_does_not_answer(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_module, "SAVE_NOW_LIMIT_S", 0.05)
    async with opened(memory) as (items, _):
        await fill(items, 1)
        item = await items.acquire("000")
        with ThreadPoolExecutor(1) as thread:
            saved = thread.submit(item.save_now, state="B").exception(LIMIT_S)  # blocks this loop meanwhile
        assert isinstance(saved, fencehold.Uncertain)


def test_save_now_on_a_loop_that_is_closed_saves_nothing(memory: str) -> None:
    async def take() -> tuple[fencehold.Store, fencehold.Item]:
        store = await fencehold.connect(memory).open()
        await fill(store.items(KIND), 1)
        return store, await store.items(KIND).acquire("000")

    store, item = asyncio.run(take())
    with pytest.raises(fencehold.Unavailable) as refused:
        item.save_now(state="B")
    assert refused.value.code == "loop_closed"
    asyncio.run(store.close())
