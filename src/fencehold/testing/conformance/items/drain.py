"""One processor of the crowd: takes, saves and breaks until no item is left in the state. Also run as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencehold.ports.backend import Backend
from fencehold.ports.items import ItemRow, ItemStore
from fencehold.testing.conformance.processes import Order, Part
from fencehold.testing.harness import CALL_LIMIT_S

LEASE_S = 60.0
BATCH = 7
PAUSE_S = 0.005
DRAIN_LIMIT_S = 40.0
NEW, DONE = "NEW", "DONE"


async def drain(items: ItemStore, who: str, note: Callable[[int], None]) -> None:
    """Process items until none is NEW; call `note` with the number of each item that is saved.

    If another processor fails, its items stay NEW for ever: hence a limit, on this thread's own loop.
    """
    async with asyncio.timeout(DRAIN_LIMIT_S):
        await _drain(items, who, note)


async def _drain(items: ItemStore, who: str, note: Callable[[int], None]) -> None:
    while True:
        taken = await items.port.next_for_state(NEW, BATCH, who, LEASE_S, CALL_LIMIT_S)
        for one in taken:
            number = int(one.document_json)
            saved = await items.port.save(one.key, DONE, str(1000 + number), CALL_LIMIT_S)
            assert isinstance(saved, ItemRow), f"{who} lost an item it held: {saved}"
            note(number)
        keys = [one.key for one in taken]
        assert not keys or await items.port.break_leases(keys, CALL_LIMIT_S) == {}, f"{who} could not break its own"
        if not taken:
            if not await items.port.find(NEW, 1, CALL_LIMIT_S):
                return
            await asyncio.sleep(PAUSE_S)  # what others are taking may come back


async def race(items: ItemStore, ids: list[str], who: str) -> list[str]:
    """Acquire all of them, in the same order as the others do; return those that were granted."""
    answers = [(item_id, await items.port.acquire(item_id, who, LEASE_S, CALL_LIMIT_S)) for item_id in ids]
    return [item_id for item_id, answer in answers if isinstance(answer, ItemRow)]


async def connected(backend: Backend, order: Order) -> ItemStore:
    items = backend.items(order["kind"])
    await items.port.find(NEW, 1, CALL_LIMIT_S)
    return items


async def work(items: ItemStore, order: Order, who: str) -> list[int]:
    """Race and drain; the items that were won in the race are the negative numbers."""
    done = [-int(item_id) for item_id in await race(items, order["race"], who)]
    await drain(items, who, done.append)
    return done


PART = Part(connected, work, lambda items: items.close())
