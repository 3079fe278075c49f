"""The low-level verbs of `store.items`, through the public API."""

import asyncio
import datetime as dt
import math
import os
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import fencehold
from fencehold.model.items.rules import ItemKey
from fencehold.model.items.settings import item_settings
from fencehold.runtime.items.keeper import ItemLease
from tests.fencehold.runtime.items.conftest import KIND, OpenedItems
from tests.fencehold.runtime.items.scene import error_of, free
from tests.fencehold.runtime.outbox.scene import eventually

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


async def test_an_item_is_put_read_leased_saved_and_deleted(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        stored = await items.put("n/1 ?#", state="REQUESTED", document={"price": 7, "who": ["ä", None]})
        assert (stored.id, stored.kind, stored.state, stored.holder_id) == ("n/1 ?#", KIND, "REQUESTED", None)
        item = await items.acquire("n/1 ?#")
        found = await items.get("n/1 ?#")
        assert found is not None
        assert (found.holder_id, found.expires_at, found.token) == (items.holder_id, item.expires_at, item.token)
        assert 55 < item.remaining_s <= 60
        await items.save(item, state="AGREED")
        assert (item.state, item.document) == ("AGREED", {"price": 7, "who": ["ä", None]})
        assert item.state_timestamp >= stored.state_timestamp
        await items.save(item, document=0)
        assert [view.document for view in await items.find("AGREED")] == [0]
        await items.delete(item)
        assert (await items.get("n/1 ?#"), item.is_valid) == (None, False)
        assert isinstance(await error_of(items.delete(item)), fencehold.LeaseLost)


async def test_another_s_live_lease_is_named_by_whoever_meets_it(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _), opened(url, holder_id="me") as (mine, _):
        await mine.put("n", state="A", document=1)
        item = await mine.acquire("n")
        refused = [items.acquire("n"), items.break_lease("n"), items.put("n", state="B", document=2)]
        for error in [await error_of(one) for one in refused]:
            assert isinstance(error, fencehold.AlreadyLeased)
            assert (error.holder_id, error.expires_at) == ("me", item.expires_at)
            assert "'me'" in str(error)
            assert item.expires_at.isoformat() in str(error)
        assert await items.next_for_state("A") == await mine.next_for_state("A") == []
        await item.save(state="C")


async def test_what_is_absent_cannot_be_acquired_and_may_be_broken(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        missing = await error_of(items.acquire("nobody"))
        assert isinstance(missing, fencehold.NoSuchItem)
        assert isinstance(missing, LookupError)
        assert missing.code == "no_such_item"
        await items.break_lease("nobody")
        await items.put("n", state="A", document=1)
        await items.break_lease("n")


async def test_of_twenty_holders_one_acquires_and_one_may_break(url: str) -> None:
    stores = [fencehold.connect(url) for _ in range(4)]
    for store in stores:
        await store.open()
    await stores[0].init()
    holders = [store.items(KIND) for store in stores for _ in range(5)]
    await holders[0].put("n", state="A", document=1)
    answers = await asyncio.gather(*(one.acquire("n") for one in holders), return_exceptions=True)
    (won,) = [answer for answer in answers if isinstance(answer, fencehold.Item)]
    assert sum(isinstance(answer, fencehold.AlreadyLeased) for answer in answers) == 19
    others = [one for one in holders if one.holder_id != won.holder_id]
    refused = await asyncio.gather(*(one.break_lease("n") for one in others), return_exceptions=True)
    assert all(isinstance(answer, fencehold.AlreadyLeased) for answer in refused)
    (winner,) = [one for one in holders if one.holder_id == won.holder_id]
    await winner.break_lease("n")
    assert (won.is_valid, await free(winner)) == (False, True)
    for store in stores:
        await store.close()


async def test_batches_of_many_holders_never_overlap(url: str) -> None:
    async with fencehold.connect(url) as store:
        await store.init()
        holders = [store.items(KIND) for _ in range(8)]
        for n in range(40):
            await holders[0].put(f"{n:02}", state="A", document=n)
        batches = await asyncio.gather(*(one.next_for_state("A", limit=10) for one in holders))
        ids = [item.id for batch in batches for item in batch]
        assert len(ids) == len(set(ids))
        rest = [item.id for one in holders for item in await one.next_for_state("A", limit=40)]
        assert sorted(ids + rest) == [f"{n:02}" for n in range(40)]


async def test_the_longest_in_a_state_come_first_and_a_save_goes_to_the_back(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        for n in "cab":
            await items.put(n, state="A", document=1)
            await asyncio.sleep(0.002)  # SQLite's clock counts milliseconds
        (first,) = await items.next_for_state("A", limit=1)
        await first.save(state="A")
        await items.break_lease(first)
        assert [item.id for item in await items.next_for_state("A")] == ["a", "b", "c"]


async def test_renewals_of_many_items_are_one_statement_and_those_lost_are_left_out(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    asked: list[int] = []
    renew = MemoryItemPort.renew

    async def counted(self: Any, keys: list[ItemKey], *limits: float) -> Any:
        asked.append(len(keys))
        return await renew(self, keys, *limits)

    monkeypatch.setattr(MemoryItemPort, "renew", counted)
    async with opened(memory) as (items, _):
        for n in range(1000):
            await items.put(str(n), state="A", document=n)
        held = await items.next_for_state("A", limit=1000)
        before = held[5].expires_at
        await items.break_lease(held[7])
        renewed = await items.renew(held)
        assert asked == [999]
        assert [item.id for item in held if item not in renewed] == [held[7].id]
        assert held[5].expires_at > before
        assert await items.renew(held[0]) == [held[0]]


async def test_a_thousand_items_in_their_blocks_take_few_statements_a_round(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    renewed: dict[str, int] = {}
    statements, enough = [0], asyncio.Event()
    loop, renew = asyncio.get_running_loop(), MemoryItemPort.renew

    async def counted(self: Any, keys: list[ItemKey], *limits: float) -> Any:
        statements[0] += 1
        renewed.update((key.id, renewed.get(key.id, 0) + 1) for key in keys)
        if len(renewed) == 1000 and min(renewed.values()) >= 2:
            loop.call_soon_threadsafe(enough.set)
        return await renew(self, keys, *limits)

    monkeypatch.setattr(MemoryItemPort, "renew", counted)
    async with opened(memory, lease="6s") as (items, _):
        for n in range(1000):
            await items.put(str(n), state="A", document=n)

        async def work(item: fencehold.Item) -> None:
            async with item:
                await enough.wait()

        held = await items.next_for_state("A", limit=1000)
        async with asyncio.timeout(20):
            await asyncio.gather(*map(work, held))
        assert statements[0] <= 3 * max(renewed.values())


async def test_past_its_deadline_nothing_is_even_asked(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    async def never(*_: object) -> None:
        raise AssertionError("what is over is not sent")

    async with opened(memory, lease="100ms") as (items, heard):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")

        async def is_over() -> bool:
            return not item.is_valid

        await eventually(is_over)
        for verb in ("save", "delete", "renew"):
            monkeypatch.setattr(MemoryItemPort, verb, never)
        assert await items.renew([item]) == []
        for late in (item.save(state="B"), items.delete(item)):
            assert isinstance(await error_of(late), fencehold.LeaseLost)
        assert heard.all("item_lost", reason="deadline_passed", id="n")


@pytest.mark.parametrize("verb", ["acquire", "next_for_state"])
async def test_a_grant_that_comes_after_the_deadline_is_a_no_and_is_given_back(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The lease counts from when it was asked for, however long the question was on its way."""
    from fencehold.backends.memory.items import MemoryItemPort

    inner = getattr(MemoryItemPort, verb)

    async def slow(*args: Any) -> Any:
        await asyncio.sleep(0.25)
        return await inner(*args)

    monkeypatch.setattr(MemoryItemPort, verb, slow)
    async with opened(memory, lease="200ms") as (items, _):
        await items.put("n", state="A", document=1)
        if verb == "acquire":
            assert isinstance(await error_of(items.acquire("n")), fencehold.LeaseLost)
        else:
            assert await items.next_for_state("A") == []
        found = await items.get("n")
        assert found is not None
        assert (found.token, found.holder_id) == (1, None)


class Watch:
    """A clock that is set by hand."""

    now = 0.0

    def now_s(self) -> float:
        return self.now

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        raise AssertionError("nobody waits here")


def test_a_renewal_answered_after_the_deadline_does_not_bring_the_lease_back() -> None:
    clock, until, told = Watch(), dt.datetime.now(dt.UTC), list[str]()
    facts: Any = SimpleNamespace(fact=lambda _, reason, **rest: told.append(reason))
    lease = ItemLease(KIND, ItemKey("n", "me", 1), until, 0.0, item_settings(lease=10), clock=clock, facts=facts)
    clock.now = 8.99
    assert lease.renewed(until, 5.0)  # asked for at 5: trusted until 14
    clock.now = 13.99
    assert lease.is_valid
    clock.now = 14.0
    assert not lease.renewed(until, 13.0)
    assert not lease.is_valid
    with pytest.raises(fencehold.LeaseLost):
        lease.check()
    clock.now = 13.5
    assert (lease.is_valid, told) == (False, ["deadline_passed"])


async def test_a_later_lease_of_the_same_holder_ends_the_one_before(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        before = await items.acquire("n")
        after = await items.acquire("n")
        assert (before.is_valid, after.is_valid, after.token > before.token) == (False, True, True)
        assert isinstance(await error_of(before.save(state="B")), fencehold.LeaseLost)
        assert isinstance(await error_of(items.break_lease(before)), fencehold.AlreadyLeased)
        await after.save(state="C")


@pytest.mark.fault("cancel", "items", "any")
async def test_what_was_granted_to_a_cancelled_caller_is_given_back(
    memory: str, opened: OpenedItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fencehold.backends.memory.items import MemoryItemPort

    inner, asked, answer = MemoryItemPort.next_for_state, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> Any:
        asked.set()
        await answer.wait()
        return await inner(*args)

    monkeypatch.setattr(MemoryItemPort, "next_for_state", slow)
    async with opened(memory) as (items, _):
        await items.put("n", state="A", document=1)
        task = asyncio.create_task(items.next_for_state("A"))
        await asked.wait()
        task.cancel()
        assert isinstance(await error_of(_awaited(task)), asyncio.CancelledError)
        answer.set()

        async def was_given_back() -> bool:
            found = await items.get("n")
            return found is not None and found.token == 1 and found.holder_id is None

        await eventually(was_given_back)


async def _awaited(task: asyncio.Task[Any]) -> Any:
    return await task


@pytest.mark.fault("fork", "items")
async def test_a_forked_child_holds_nothing(url: str, opened: OpenedItems) -> None:
    async with opened(url) as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        child = os.fork()
        if child == 0:
            os._exit(0 if not item.is_valid and item.remaining_s == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert item.is_valid


BAD_DOCUMENTS = [
    {1, 2},
    math.nan,
    math.inf,
    CIRCLE,
    b"bytes",
    {"at": dt.datetime.now(dt.UTC)},
    object(),
    "\0",
    "\ud800",
    {"a": [{1: 2}]},
]


@pytest.mark.parametrize("document", BAD_DOCUMENTS, ids=lambda one: type(one).__name__)
async def test_what_is_no_json_is_refused_before_anything_is_sent(
    memory: str, opened: OpenedItems, document: Any
) -> None:
    async with opened(memory) as (items, _):
        await items.put("n", state="A", document=1)
        item = await items.acquire("n")
        for asked in (items.put("m", state="A", document=document), item.save(document=document)):
            error = await error_of(asked)
            assert isinstance(error, fencehold.ConfigurationError)
            assert error.code == "bad_document"
        assert (await items.get("m"), item.is_valid) == (None, True)


async def test_a_document_beyond_the_limit_and_a_save_of_nothing_are_refused(memory: str, opened: OpenedItems) -> None:
    async with opened(memory, document_bytes_max=10) as (items, _):
        await items.put("n", state="A", document="ä" * 4)
        too_large = await error_of(items.put("n", state="A", document="ä" * 5))
        assert isinstance(too_large, fencehold.ConfigurationError)
        assert (too_large.code, "12 bytes" in str(too_large)) == ("document_too_large", True)
        item = await items.acquire("n")
        nothing = await error_of(item.save())
        assert isinstance(nothing, fencehold.ConfigurationError)
        assert nothing.code == "nothing_to_save"


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 300, 7, None, "\ud800"], ids=repr)
async def test_names_no_database_would_keep_are_refused_before_anything_is_sent(memory: str, name: Any) -> None:
    async with fencehold.connect(memory) as store:
        items = store.items(KIND)
        asked: list[Coroutine[Any, Any, Any]] = [
            items.put(name, state="A", document=1),
            items.get(name),
            items.acquire(name),
            items.break_lease(name),
        ]
        asked += [items.put("n", state=name, document=1), items.next_for_state(name)]
        for one in asked:
            error = await error_of(one)
            assert isinstance(error, fencehold.ConfigurationError)
            assert error.code == "bad_name"
        with pytest.raises(fencehold.ConfigurationError):
            store.items(name)


async def test_settings_that_cannot_work_are_one_error_before_anything_is_sent(memory: str) -> None:
    async with fencehold.connect(memory) as store:
        with pytest.raises(fencehold.ConfigurationError) as wrong:
            store.items(KIND, lease="20ms", heartbeat_every="10ms", stall_limit="5ms", document_bytes_max=0)
        for word in ("lease is 0.02", "heartbeat_every", "stall_limit", "document_bytes_max"):
            assert word in str(wrong.value)
        items = store.items(KIND)
        for limit in (0, -1, True, "7", 10_000):
            error = await error_of(items.next_for_state("A", limit=limit))  # type: ignore[arg-type]
            assert isinstance(error, fencehold.ConfigurationError)
        for stranger in ("n", 7, None):
            error = await error_of(items.delete(stranger))  # type: ignore[arg-type]
            assert isinstance(error, fencehold.ConfigurationError | TypeError)


async def test_every_items_object_is_a_holder_of_its_own(memory: str) -> None:
    async with fencehold.connect(memory) as store:
        assert len({store.items(KIND).holder_id for _ in range(100)}) == 100
