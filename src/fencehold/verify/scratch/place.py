"""The place of a run in the user's database: made for this run alone, read at the end, and then removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol, TypeVar

import fencehold
from fencehold.telemetry.fan_out import UNHEARD
from fencehold.verify.plan import ITEM_KIND, ITEMS, LEASES, LOCK

T = TypeVar("T")


class Scratch(Protocol):
    """The place of one run. Each kind of database has its own class for it."""

    dialect: str
    schema: str
    lease_table: str
    outbox: str
    has_locks: bool
    url: str  # of the database itself, for the parent process
    left: list[str]  # what other runs made and have not removed yet

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        """The servers that get a fault proxy; empty: there is no network."""

    def url_through(self, ports: Sequence[int]) -> str:
        """The URL of the database through proxies on these ports."""

    async def make(self) -> None:
        """Make the place. Raises ConfigurationError if this user may not make it."""

    async def prepare(self) -> None:
        """Make the contenders' tables, and the triggers for the judge; the library's own tables exist already."""

    async def rows(self, statement: str) -> list[tuple[Any, ...]]: ...

    def held_up(self, counter: str) -> AbstractAsyncContextManager[None]:
        """Inside the block, a writer of this counter has to wait. Raises Unavailable if the database is away."""

    async def drop(self) -> str | None:
        """Remove the place. Returns a text about what could not be removed; None: nothing is left."""


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. A cancel is raised only after `work` has ended.

    So what `work` makes exists before it is removed, not after.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await to_the_end(task)
        raise


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait until `work` has ended, even if this task is cancelled meanwhile, and return its result.

    A cancel is ignored: what makes or removes the place must not be left half done.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


def counters(scratch: Scratch) -> tuple[str, ...]:
    return (*LEASES, LOCK) if scratch.has_locks else LEASES


async def make_tables(scratch: Scratch) -> None:
    """Make the library's own tables, as a user would make them, and the run's tables beside them."""
    async with fencehold.connect(scratch.url, table=scratch.lease_table, facts=UNHEARD, open_timeout=0) as store:
        store.outbox(scratch.outbox)
        items = store.items(ITEM_KIND)
        await store.init()
        for item in ITEMS:
            await items.put(item, state="OPEN", document={"token": 0})
    await scratch.prepare()
