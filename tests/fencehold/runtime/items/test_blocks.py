"""`async with item:` keeps the lease while the body runs, breaks it on every way out, and stops a body that lost it."""

import asyncio
import contextlib
import datetime as dt
import time
from typing import Any

import pytest

import fencehold
from tests.fencehold.runtime.items.conftest import KIND, OpenedItems
from tests.fencehold.runtime.items.scene import error_of, free
from tests.fencehold.runtime.outbox.scene import enough_s, eventually

#: Nothing lapses by itself on a busy machine, and yet a loss is noticed soon.
BRISK: Any = {"lease": "5s", "heartbeat_every": "20ms"}


async def steal(url: str, item: fencehold.Item) -> fencehold.Item:
    """As another process would have it after the lease was over: the store refuses the holder from now on."""
    async with fencehold.connect(url) as store:
        await store.items(KIND, holder_id=item.holder_id).break_lease(item.id)
        return await store.items(KIND, holder_id="thief").acquire(item.id)


async def test_the_lease_outlives_its_duration_while_the_body_runs_and_is_broken_when_it_returns(
    url: str, opened: OpenedItems
) -> None:
    lease_s = enough_s(url, 1.0)
    async with opened(url, lease=lease_s, heartbeat_every="100ms") as (items, _):
        await items.put("n", state="REQUESTED", document={"n": 1})
        item = await items.acquire("n")
        first_until = item.expires_at

        async def is_renewed() -> bool:
            return item.expires_at > first_until + dt.timedelta(seconds=lease_s)

        async with item:
            await eventually(is_renewed)
            assert item.is_valid
            await item.save(state="AGREED", document=[1, None, "ü"])
        assert (item.state, item.document, item.is_valid) == ("AGREED", [1, None, "ü"], False)
        assert await free(items)
        with pytest.raises(fencehold.LeaseLost):
            await item.save(state="LATE")
        found = await items.get("n")
        assert found is not None
        assert (found.state, found.document, found.token) == ("AGREED", [1, None, "ü"], item.token)


async def test_the_lease_is_broken_when_the_body_raises(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        with pytest.raises(ZeroDivisionError):
            async with await items.acquire("n"):
                raise ZeroDivisionError
        assert await free(items)


@pytest.mark.fault("cancel", "items")
async def test_the_lease_is_broken_when_the_body_is_cancelled_even_twice(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        inside = asyncio.Event()

        async def work() -> None:
            async with await items.acquire("n"):
                try:
                    inside.set()
                    await asyncio.Event().wait()
                finally:
                    # Again, on the way out, while the lease is being broken.
                    asyncio.get_running_loop().call_soon(work_task.cancel)

        work_task = asyncio.create_task(work())
        await inside.wait()
        work_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work_task
        assert await free(items)


async def test_a_timeout_around_the_block_is_still_a_timeout(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, _):
        await items.put("n", state="A", document=1)

        async def work() -> None:
            async with asyncio.timeout(0.01), await items.acquire("n"):
                await asyncio.Event().wait()

        assert isinstance(await error_of(work()), TimeoutError)
        assert await free(items)


async def test_a_body_whose_lease_is_lost_is_cancelled_and_the_block_raises(url: str, opened: OpenedItems) -> None:
    async with opened(url, **BRISK) as (items, heard):
        await items.put("n", state="A", document=1)
        item, was_valid = await items.acquire("n"), [True]

        async def work() -> None:
            async with item:
                try:
                    await steal(url, item)
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    was_valid.append(item.is_valid)
                    raise

        error = await error_of(work())
        assert isinstance(error, fencehold.LeaseLost)
        assert (error.item_id, error.token, was_valid) == ("n", item.token, [True, False])
        assert (await heard.once("item_lost"))["reason"] == "lease_lost"


async def test_a_body_that_hides_its_cancellation_does_not_look_finished(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, **BRISK) as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")

        async def work() -> None:
            async with item:
                with contextlib.suppress(asyncio.CancelledError):
                    await steal(memory, item)
                    await asyncio.Event().wait()

        assert isinstance(await error_of(work()), fencehold.LeaseLost)


async def test_a_cancel_from_outside_is_not_mistaken_for_a_loss(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, **BRISK) as (items, heard):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        outside: list[asyncio.Task[None]] = []

        async def work() -> None:
            async with item:
                try:
                    await steal(memory, item)
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    outside[0].cancel()  # both at once
                    raise

        outside.append(asyncio.create_task(work()))
        with pytest.raises(asyncio.CancelledError):
            await outside[0]
        assert heard.all("item_lost")


async def test_the_error_of_a_body_that_lost_its_lease_is_the_one_raised(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, **BRISK) as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")

        async def work() -> None:
            async with item:
                try:
                    await steal(memory, item)
                    await asyncio.Event().wait()
                finally:
                    raise ZeroDivisionError

        assert isinstance(await error_of(work()), ZeroDivisionError)


async def test_no_cancel_of_ours_is_left_for_whoever_awaits_next(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, **BRISK) as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        for_next: list[str] = []

        async def work() -> None:
            with contextlib.suppress(fencehold.LeaseLost):
                async with item:
                    item._lease.end("lease_lost")
                    await asyncio.Event().wait()
            await asyncio.sleep(0)
            for_next.append("reached")

        await work()
        task = asyncio.current_task()
        assert task is not None
        assert (for_next, task.cancelling()) == (["reached"], 0)


async def test_a_lost_item_cannot_be_entered_and_a_held_one_not_twice(memory: str, opened: OpenedItems) -> None:
    async with opened(memory) as (items, _), opened(memory, lease="100ms") as (hasty, _):
        await items.put("n", state="A", document=1)
        await items.put("m", state="A", document=1)
        item = await items.acquire("n")
        async with item:
            with pytest.raises(fencehold.ConfigurationError) as twice:
                async with item:
                    raise AssertionError("the body must not run")
        assert twice.value.code == "already_entered"
        late = await hasty.acquire("m")

        async def is_over() -> bool:
            return not late.is_valid

        await eventually(is_over)
        for over in (item, late):
            with pytest.raises(fencehold.LeaseLost):
                async with over:
                    raise AssertionError("the body must not run")


@pytest.mark.fault("blocked-loop", "items")
async def test_a_blocked_event_loop_keeps_its_item(url: str, opened: OpenedItems) -> None:
    lease_s = enough_s(url, 1.0)
    async with opened(url, lease=lease_s, heartbeat_every="100ms") as (items, _):
        await items.put("n", state="A", document=1)
        async with await items.acquire("n") as item:
            await asyncio.sleep(0)
            time.sleep(1.5 * lease_s)  # the whole event loop, for longer than a lease
            await item.save(state="B")
        assert item.state == "B"


async def test_a_loop_that_stays_blocked_beyond_the_stall_limit_loses_its_item(
    memory: str, opened: OpenedItems
) -> None:
    async with opened(memory, lease="200ms", stall_limit="100ms") as (items, heard):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")

        async def work() -> None:
            async with item:
                await asyncio.sleep(0)
                give_up_s = time.monotonic() + 10
                while item.is_valid and time.monotonic() < give_up_s:
                    time.sleep(0.02)
                await item.save(state="B")

        assert isinstance(await error_of(work()), fencehold.LeaseLost)
        assert heard.all("item_stalled", id="n")
        found = await items.get("n")
        assert found is not None
        assert found.state == "A"


async def test_closing_the_store_gives_back_what_is_held_and_stops_its_bodies(url: str) -> None:
    store = await fencehold.connect(url).open()
    await store.init()
    items = store.items(KIND)
    for n in "abc":
        await items.put(n, state="A", document=1)
    inside = asyncio.Event()

    async def work() -> None:
        async with await items.acquire("a"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    unused = await items.next_for_state("A")
    await store.close()
    with pytest.raises(fencehold.LeaseLost):
        await task
    assert [item.is_valid for item in unused] == [False, False]
    async with fencehold.connect(url) as again:
        assert len(await again.items(KIND).next_for_state("A")) == 3
    with pytest.raises(fencehold.ConfigurationError) as closed:
        await items.acquire("a")
    assert closed.value.code == "store_closed"


async def test_a_delete_in_the_body_ends_the_lease_and_not_the_body(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        async with await items.acquire("n") as item:
            await items.delete(item)
            await asyncio.sleep(0.01)
            with pytest.raises(fencehold.LeaseLost):
                await item.save(state="B")
        assert await items.get("n") is None


async def test_a_lease_that_cannot_be_given_back_is_told_and_the_body_s_own_error_is_raised(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    async def gone(*_: object) -> None:
        raise fencehold.Unavailable("the database is away")

    async with opened(memory) as (items, heard):
        await items.put("n", state="A", document=1)

        async def work() -> None:
            async with await items.acquire("n"):
                monkeypatch.setattr(MemoryItemPort, "break_leases", gone)
                raise ZeroDivisionError

        assert isinstance(await error_of(work()), ZeroDivisionError)
        assert heard.all("item_break_failed", id="n")


async def test_a_heartbeat_that_fails_is_tried_again_until_the_deadline(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    renew, away = MemoryItemPort.renew, asyncio.Event()

    async def sometimes(*args: Any) -> Any:
        if away.is_set():
            raise fencehold.Uncertain("no answer")
        return await renew(*args)

    monkeypatch.setattr(MemoryItemPort, "renew", sometimes)
    async with opened(memory, lease="1s", heartbeat_every="50ms") as (items, heard):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")

        async def work() -> None:
            async with item:
                away.set()
                await heard.once("item_heartbeat_failed")
                away.clear()
                await heard.once("item_heartbeat")
                assert item.is_valid
                away.set()
                await asyncio.Event().wait()

        assert isinstance(await error_of(work()), fencehold.LeaseLost)
        assert item.ended_because == "deadline_passed"
