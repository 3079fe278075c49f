"""The part of a contender that holds items by the public API; a second loop saves after its lease has ended."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress

import fencehold
from fencehold.model.errors import FenceholdError
from fencehold.model.items.items import ItemKey
from fencehold.ports.backend import Backend, items_of
from fencehold.ports.items import ItemRow
from fencehold.runtime.store import Store
from fencehold.verify.messages import Brief, Windows, tell, tell_stale
from fencehold.verify.plan import ITEM_KIND, ITEMS
from fencehold.verify.role import Role, found, repeated

SAVES = 2


class Holding(Role):
    name = "item"

    def __init__(self, brief: Brief, backend: Backend, windows: Windows) -> None:
        super().__init__(brief, windows)
        self._items = items_of(backend, ITEM_KIND)

    async def run(self, store: Store) -> None:
        items = store.items(ITEM_KIND, lease=self._brief.lease_s, holder_id=self._brief.who)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeated(lambda: self._hold(items), self._pause_s))
            tasks.create_task(repeated(self._overstay, self._pause_s))

    async def close(self) -> None:
        with suppress(FenceholdError):
            await self._items.close()

    def _pause_s(self) -> float:
        return max(self._brief.write_every_s, self._brief.lease_s * random.uniform(0.05, 0.2))

    async def _hold(self, items: fencehold.Items) -> None:
        item = await items.acquire(random.choice(ITEMS[:2]))
        tell("item", item=item.id, token=item.token)
        async with item:
            for number in range(SAVES):
                await item.save(document=document(item.token, number))
                await asyncio.sleep(self._brief.write_every_s / 2)
        tell("item_left", item=item.id, token=item.token)

    async def _overstay(self) -> None:
        """Save after the lease has ended, with another holder id and by the statements alone.

        So only the database decides whether to accept it.
        """
        items, lease_s = self._items, self._brief.lease_s
        row = await items.leases.acquire(random.choice(ITEMS[2:]), f"{self._brief.who}-late", lease_s / 2, lease_s)
        if not isinstance(row, ItemRow):
            return
        tell("item", item=row.id, token=row.token)
        await items.port.save(row.key, None, json.dumps(document(row.token, 0)), lease_s)
        async with self.window("held", item=row.id, token=row.token):
            successor = await found(lambda: self._successor(row.key), 3 * lease_s, lease_s / 20)
            if successor is not None:
                seen = f"{successor.holder_id} had been given token {successor.token}"
                answer = await items.port.save(row.key, None, json.dumps(document(row.token, 1)), lease_s)
                tell_stale("SAVE", row.id, f"token {row.token}", seen, isinstance(answer, ItemRow))
            tell("item_left", item=row.id, token=row.token)

    async def _successor(self, key: ItemKey) -> ItemRow | None:
        row = (await self._items.port.get([key.id], self._brief.lease_s)).get(key.id)
        return row if row is not None and row.token > key.token else None


def document(token: int, number: int) -> dict[str, int]:
    """Return the document to save. It holds the saver's token: so a save under another's lease shows."""
    return {"token": token, "number": number}
