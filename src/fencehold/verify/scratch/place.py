"""The place of a run in the user's database: made for it alone, read at the end, and gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol, TypeVar

import fencehold
from fencehold.ports.facts import FactSink
from fencehold.verify.plan import ITEM_KIND, ITEMS, LEASES, LOCK

T = TypeVar("T")


class Scratch(Protocol):
    """What differs between databases."""

    dialect: str
    schema: str
    lease_table: str
    outbox: str
    has_locks: bool
    left: list[str]  # what other runs made and have not removed yet

    @property
    def url(self) -> str:
        """Straight to the database, for the parent process."""
        ...

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        """What the fault proxies stand in front of; empty: there is no network."""
        ...

    def url_through(self, ports: Sequence[int]) -> str:
        """The same through proxies on these ports."""
        ...

    async def make(self) -> None:
        """Raises ConfigurationError if it may not be made."""
        ...

    async def prepare(self) -> None:
        """Tables for the contenders and triggers for the judge; the library's own tables are there."""
        ...

    async def rows(self, statement: str) -> list[tuple[Any, ...]]: ...

    def held_up(self, counter: str) -> AbstractAsyncContextManager[None]:
        """Inside, a writer of this counter waits. Raises Unavailable if the database is away."""
        ...

    async def drop(self) -> str | None:
        """What could not be removed, in words; None: nothing is left."""
        ...


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Its result. When cancelled, only after it has ended: what it makes is there before it is removed, not after."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        with suppress(Exception):
            task.result()
        raise


def counters(scratch: Scratch) -> tuple[str, ...]:
    return (*LEASES, LOCK) if scratch.has_locks else LEASES


async def make_tables(scratch: Scratch, facts: FactSink) -> None:
    """The library's own tables, made as a user would make them, and the run's beside them."""
    async with fencehold.connect(scratch.url, table=scratch.lease_table, facts=facts, open_timeout=0) as store:
        store.outbox(scratch.outbox)
        items = store.items(ITEM_KIND)
        await store.init()
        for item in ITEMS:
            await items.put(item, state="OPEN", document={"token": 0})
    await scratch.prepare()
