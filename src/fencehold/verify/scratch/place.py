"""The scratch place of a run in the user's database: made for this run alone, read at the end, and then removed.

It is a schema on PostgreSQL, and a file beside the user's on SQLite.
"""

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
    """The schema or file of one run in the user's database. Each kind of database has its own class for it."""

    dialect: str
    schema: str
    lease_table: str
    outbox: str
    has_locks: bool
    url: str  # of the database itself, for the parent process
    left: list[str]  # what other runs made and have not removed yet

    @property
    def servers(self) -> Sequence[tuple[str, int]]:
        """The addresses of the servers that get a fault proxy; empty if there is no network."""

    def url_through(self, ports: Sequence[int]) -> str:
        """Return the URL of the database through proxies on these ports, one port for each of `servers`."""

    async def make(self) -> None:
        """Make the schema or file. Raises ConfigurationError if this user may not make it."""

    async def prepare(self) -> None:
        """Make the contenders' tables, and the triggers for the judge; the library's own tables exist already."""

    async def rows(self, statement: str) -> list[tuple[Any, ...]]: ...

    def held_up(self, counter: str) -> AbstractAsyncContextManager[None]:
        """Lock the row of this counter, or the whole file, while the block runs: a writer has to wait.

        Raises Unavailable if the lock cannot be taken.
        """

    async def drop(self) -> str | None:
        """Remove the schema or file. Returns a text about what could not be removed; None: nothing is left."""


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. If this task is cancelled, CancelledError is raised only after `work` has ended.

    So what `work` makes exists before the clean-up removes it, and does not appear after that.
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

    Such a cancel is ignored: what makes or removes the run's schema or file must not be left half done.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


def counters(scratch: Scratch) -> tuple[str, ...]:
    return (*LEASES, LOCK) if scratch.has_locks else LEASES


async def make_tables(scratch: Scratch) -> None:
    """Make the library's own tables, as a user would make them, and then the run's own tables."""
    async with fencehold.connect(scratch.url, table=scratch.lease_table, facts=UNHEARD, open_timeout=0) as store:
        store.outbox(scratch.outbox)
        items = store.items(ITEM_KIND)
        await store.init()
        for item in ITEMS:
            await items.put(item, state="OPEN", document={"token": 0})
    await scratch.prepare()
