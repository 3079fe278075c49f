"""Tests with many holders at once, with exact totals: one grant per item, one break per lease, no item left out."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from fencehold.model.items.rules import HELD_BY_ANOTHER, ItemKey
from fencehold.ports.backend import Backend, items_of
from fencehold.ports.items import ItemAnswer, ItemRefusal, ItemRow, ItemStore, NewItem
from fencehold.testing.conformance.items.pair import EVERYTHING, ItemTests, row
from fencehold.testing.conformance.processes import Order, Part, told_by_processes
from fencehold.testing.conformance.suite import LEASE, LEASE_S, START, needs
from fencehold.testing.harness import CALL_LIMIT_S, ITEM_KIND, Can, Harness

HOLDERS = 20
ROUNDS = 3
ITEMS = 120
PRIZES = 20
PROCESSES = 2
HOLDERS_PER_PROCESS = 3
BATCH = 7
PAUSE_S = 0.005
DRAIN_LIMIT_S = 40.0
NEW, DONE = "NEW", "DONE"


class ItemCrowd(ItemTests):
    async def test_of_20_holders_exactly_one_acquires_and_exactly_one_may_break(self, harness: Harness) -> None:
        clients = await crowd(harness)
        row(await clients[0].port.put(NewItem("deal", NEW, "{}", "whoever"), CALL_LIMIT_S))
        tokens = []
        for _ in range(ROUNDS):
            [(winner, held)] = granted(await asyncio.gather(*(acquire(c, n) for n, c in enumerate(clients))))
            tokens.append(held.token)
            keys = [ItemKey("deal", holder(n), held.token if n == winner else 0) for n in range(HOLDERS)]
            await self._only_the_holder_may_break(clients, keys, winner)
        assert tokens == sorted(set(tokens))

    async def _only_the_holder_may_break(self, clients: list[ItemStore], keys: list[ItemKey], winner: int) -> None:
        """Check that only the holder can break the lease: all others try at once while it renews, then it does so."""
        others = [(clients[n], key) for n, key in enumerate(keys) if n != winner]
        breaks, until = await asyncio.gather(
            asyncio.gather(*(client.leases.break_leases([key], CALL_LIMIT_S) for client, key in others)),
            clients[winner].leases.renew([keys[winner]], LEASE_S, CALL_LIMIT_S),
        )
        assert until == {keys[winner]: START + LEASE}
        for (_, key), refusals in zip(others, breaks, strict=True):
            assert list(refusals) == [key]
            assert_held(refusals[key], holder(winner))
        assert await clients[winner].leases.break_leases([keys[winner]], CALL_LIMIT_S) == {}

    async def test_of_many_who_put_one_new_item_at_once_none_fails(self, harness: Harness) -> None:
        """Some calls create the item and some replace it.

        The item that is left is complete, and is that of one call.
        """
        clients = (await crowd(harness))[:9]
        new = [NewItem("deal", f"state {n}", str(n), holder(n)) for n in range(len(clients))]
        puts = (client.port.put(item, CALL_LIMIT_S) for client, item in zip(clients, new, strict=True))
        for item, answer in zip(new, await asyncio.gather(*puts), strict=True):
            made = row(answer)
            assert (made.state, made.document_json) == (item.state, item.document_json)
        left = (await clients[0].port.get(["deal"], CALL_LIMIT_S))["deal"]
        assert left.state == f"state {left.document_json}"

    async def test_a_delete_among_many_saves_of_its_lease_is_not_undone(self, harness: Harness) -> None:
        """In whatever order the calls arrive: a save after the delete is refused, and no save is half done."""
        clients = (await crowd(harness))[:9]
        row(await clients[0].port.put(NewItem("deal", NEW, "0", "whoever"), CALL_LIMIT_S))
        key = row(await clients[0].leases.acquire("deal", "ada", LEASE_S, CALL_LIMIT_S)).key
        ended = clients[8].port.delete(key, CALL_LIMIT_S)
        saves = (c.port.save(key, f"state {n}", str(n), CALL_LIMIT_S) for n, c in enumerate(clients[:8]))
        gone, *answers = await asyncio.gather(ended, *saves)
        assert gone is None, "its holder deleted it"
        for number, answer in enumerate(answers):
            if isinstance(answer, ItemRow):
                assert (answer.state, answer.document_json) == (f"state {number}", str(number))
        assert await clients[0].port.get(["deal"], CALL_LIMIT_S) == {}

    async def test_of_many_takers_each_item_goes_to_exactly_one(self, harness: Harness) -> None:
        """No lease is given back, so an item that is taken twice was granted twice."""
        clients = await crowd(harness)
        await fill(clients[0])
        taken: list[str] = []

        async def take_all(number: int, client: ItemStore) -> None:
            while True:
                got = await client.leases.next_for_state(NEW, 5, holder(number), LEASE_S, CALL_LIMIT_S)
                taken.extend(one.id for one in got)
                if not got and await none_is_free(client):
                    return
                await asyncio.sleep(0)  # let the others run, even where a verb waits for nothing

        await asyncio.gather(*(take_all(n, client) for n, client in enumerate(clients)))
        assert Counter(taken) == Counter(f"item {n}" for n in range(ITEMS))

    async def test_on_threads_each_item_is_worked_on_exactly_once(self, harness: Harness) -> None:
        store = (await crowd(harness, 1))[0]
        await fill(store)
        done: list[int] = []

        async def work(number: int) -> None:
            items = items_of(harness.make(), ITEM_KIND)
            try:
                await drain(items, holder(number), done.append)
            finally:
                await items.close()

        with eager_threads():
            await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(n)) for n in range(8)))
        await assert_all_done(store, done)


@needs(Can.PROCESSES)
class ItemProcessCrowd(ItemTests):
    """Tests in which real processes acquire and process the items of one kind."""

    async def test_processes_win_each_item_once_and_work_on_each_exactly_once(self, harness: Harness) -> None:
        await harness.shift_clock(dt.timedelta())
        store = await harness.items()
        await fill(store)
        prizes = [str(n) for n in range(1, PRIZES + 1)]
        for item_id in prizes:
            row(await store.port.put(NewItem(item_id, "PRIZE", "{}", "whoever"), CALL_LIMIT_S))
        order = {"kind": ITEM_KIND, "clients": HOLDERS_PER_PROCESS, "race": prizes}
        told = await told_by_processes(harness, "items.crowd:PART", PROCESSES, order)
        assert Counter(-n for line in told for n in line if n < 0) == Counter(range(1, PRIZES + 1))
        await assert_all_done(store, [n for line in told for n in line if n >= 0])


@contextlib.contextmanager
def eager_threads() -> Iterator[None]:
    """Inside the block, switch threads so often that a verb which is not atomic is interrupted in the middle."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


async def crowd(harness: Harness, count: int = HOLDERS) -> list[ItemStore]:
    """Return `count` connected clients, and stop the clock at START.

    So no lease ends by itself, and all items enter their state at one instant.
    """
    await harness.set_clock(START)
    stores = [await harness.items(init=n == 0) for n in range(count)]
    for store in stores:  # connect now, so that they reach the item together and not one after the other
        await store.port.get(["deal"], CALL_LIMIT_S)
    return stores


async def fill(store: ItemStore) -> None:
    for n in range(ITEMS):
        row(await store.port.put(NewItem(f"item {n}", NEW, str(n), "whoever"), CALL_LIMIT_S))


def holder(number: int) -> str:
    return f"holder {number}"


async def acquire(client: ItemStore, number: int) -> ItemAnswer:
    return await client.leases.acquire("deal", holder(number), LEASE_S, CALL_LIMIT_S)


def granted(answers: list[ItemAnswer]) -> list[tuple[int, ItemRow]]:
    """Check that exactly one answer is a grant, and that each refusal names the winner as the holder.

    Returns a list with one entry: the number of the winner's answer, and the item that it was granted.
    """
    yes = [(n, answer) for n, answer in enumerate(answers) if isinstance(answer, ItemRow)]
    assert len(yes) == 1, f"{len(yes)} were granted one item"
    for answer in answers:
        if isinstance(answer, ItemRefusal):
            assert_held(answer, holder(yes[0][0]))
    return yes


def assert_held(no: ItemRefusal, by: str) -> None:
    assert no.current is not None
    assert (no.reason, no.current.holder_id, no.current.expires_at) == (HELD_BY_ANOTHER, by, START + LEASE)


async def none_is_free(client: ItemStore) -> bool:
    return all(one.holder_id is not None for one in await client.admin.find(NEW, EVERYTHING, CALL_LIMIT_S))


async def assert_all_done(store: ItemStore, done: list[int]) -> None:
    assert Counter(done) == Counter(range(ITEMS))
    rows = await store.admin.find(DONE, EVERYTHING, CALL_LIMIT_S)
    assert [one.holder_id for one in rows] == [None] * ITEMS
    assert await store.admin.find(NEW, EVERYTHING, CALL_LIMIT_S) == []
    assert sorted(int(one.document_json) for one in rows) == [1000 + n for n in range(ITEMS)]


# One processor, which may be in a process of its own: it takes, saves and breaks until no item is left in the state


async def drain(items: ItemStore, who: str, note: Callable[[int], None]) -> None:
    """Process items until none is NEW; call `note` with the number of each item that is saved.

    Raises TimeoutError after DRAIN_LIMIT_S: if another processor fails, its items stay NEW for ever.
    """
    async with asyncio.timeout(DRAIN_LIMIT_S):
        await _drain(items, who, note)


async def _drain(items: ItemStore, who: str, note: Callable[[int], None]) -> None:
    while True:
        taken = await items.leases.next_for_state(NEW, BATCH, who, LEASE_S, CALL_LIMIT_S)
        for one in taken:
            number = int(one.document_json)
            saved = await items.port.save(one.key, DONE, str(1000 + number), CALL_LIMIT_S)
            assert isinstance(saved, ItemRow), f"{who} lost an item it held: {saved}"
            note(number)
        keys = [one.key for one in taken]
        assert not keys or await items.leases.break_leases(keys, CALL_LIMIT_S) == {}, f"{who} could not break its own"
        if not taken:
            if not await items.admin.find(NEW, 1, CALL_LIMIT_S):
                return
            await asyncio.sleep(PAUSE_S)  # an item that another one has taken may become free again


async def race(items: ItemStore, ids: list[str], who: str) -> list[str]:
    """Acquire all items in `ids`, in the same order as the other clients do; return the ids that were granted."""
    answers = [(item_id, await items.leases.acquire(item_id, who, LEASE_S, CALL_LIMIT_S)) for item_id in ids]
    return [item_id for item_id, answer in answers if isinstance(answer, ItemRow)]


async def connected(backend: Backend, order: Order) -> ItemStore:
    items = items_of(backend, order["kind"])
    await items.admin.find(NEW, 1, CALL_LIMIT_S)
    return items


async def work(items: ItemStore, order: Order, who: str) -> list[int]:
    """Race for the items that `order` names, then process other items until none is NEW; return their numbers.

    The numbers of items won in the race are negative.
    """
    done = [-int(item_id) for item_id in await race(items, order["race"], who)]
    await drain(items, who, done.append)
    return done


PART = Part(connected, work, lambda items: items.close())
