"""What a fragment on a page takes as given: the names that its marker lists, and that the page explains.

python -m tests.docs.given PROGRAM NAME...: calls the function `block` that the program defines, with what is named.
`DATABASE` in the environment is the address of the database; it gets the tables of a store, and OWN_TABLES.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import runpy
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fencehold
import pgleaderlock

#: A reader's own.
OWN_TABLES = """
CREATE TABLE IF NOT EXISTS report (id int, status text);
INSERT INTO report VALUES (7, 'new');
CREATE TABLE IF NOT EXISTS job (id int, state text);
INSERT INTO job VALUES (7, 'new');
CREATE TABLE IF NOT EXISTS invoice (order_id int);
"""


@asynccontextmanager
async def store(url: str) -> AsyncIterator[fencehold.Store]:
    async with fencehold.connect(url) as opened:
        if not url.startswith("cosmos:"):
            opened.outbox()
        opened.items("negotiation")
        await opened.init()
        yield opened


async def make_tables(url: str, tracking_ids: Sequence[str] = ()) -> None:
    """Those of a store, with these events in its outbox, and OWN_TABLES. What is there stays."""
    async with store(url) as opened:
        for tracking_id in tracking_ids:
            await opened.outbox().add("order.created", {"id": 7}, tracking_id=tracking_id)
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(OWN_TABLES)
    elif url.startswith("postgresql:"):
        with psycopg.connect(url) as connection:
            connection.execute(OWN_TABLES.encode())


@asynccontextmanager
async def term(url: str) -> AsyncIterator[fencehold.Term]:
    async with store(url) as opened, opened.leader("nightly") as leader:
        assert await leader.wait_for_leadership(20)
        assert leader.term is not None
        yield leader.term


@asynccontextmanager
async def outbox(url: str) -> AsyncIterator[fencehold.Outbox]:
    async with store(url) as opened:
        added = opened.outbox()
        await added.add("order.created", {"id": 7})
        yield added


@asynccontextmanager
async def items(url: str) -> AsyncIterator[fencehold.Items]:
    async with store(url) as opened:
        found = opened.items("negotiation")
        await found.put("n-7", state="REQUESTED", document={"asset": 7})
        yield found


@asynccontextmanager
async def event(url: str) -> AsyncIterator[fencehold.Event]:
    """In the hands of a handler for as long as the block runs."""
    claimed: asyncio.Future[fencehold.Event] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def handle(one: fencehold.Event) -> None:
        if not over.is_set():
            claimed.set_result(one)
        await over.wait()

    async with outbox(url) as found:
        worker = found.worker(handle, concurrency=1)
        running = asyncio.create_task(worker.run())
        yield await claimed
        over.set()
        worker.stop()
        await running


@asynccontextmanager
async def handler(url: str) -> AsyncIterator[fencehold.EventHandler]:
    async def handle(one: fencehold.Event) -> None:
        print("handling", one.event_type, one.payload)

    yield handle


@asynccontextmanager
async def lock(url: str) -> AsyncIterator[pgleaderlock.LeaderLock]:
    async with pgleaderlock.LeaderLock(url, 1, 100) as entered:
        yield entered


@asynccontextmanager
async def sync_connection(url: str) -> AsyncIterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as connection:
        yield connection


@asynccontextmanager
async def async_connection(url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    yield made
    await made.dispose()


Opened = Callable[[str], AbstractAsyncContextManager[Any]]
#: By name: of what type it is, and what opens it; for an address nothing has to be opened. A name of two words is known
#: to the program by the last one: its page says which of them its `conn` is.
GIVEN: dict[str, tuple[str, Opened | None]] = {
    "url": ("str", None),
    "dsn": ("str", None),
    "store": ("fencehold.Store", store),
    "term": ("fencehold.Term", term),
    "outbox": ("fencehold.Outbox", outbox),
    "items": ("fencehold.Items", items),
    "event": ("fencehold.Event", event),
    "handle": ("fencehold.EventHandler", handler),
    "lock": ("pgleaderlock.LeaderLock", lock),
    "conn": ("psycopg.Connection[typing.Any]", sync_connection),
    "async conn": ("psycopg.AsyncConnection[typing.Any]", async_connection),
    "engine": ("sqlalchemy.ext.asyncio.AsyncEngine", engine),
}


async def called(block: Callable[..., Any], url: str, names: Sequence[str]) -> None:
    """Whatever it is given is closed after it."""
    async with AsyncExitStack() as stack:
        opens = [GIVEN[name][1] for name in names]
        values = [await stack.enter_async_context(opened(url)) if opened else url for opened in opens]
        result = block(*values)
        if inspect.isawaitable(result):
            await result


def main(program: str, *names: str) -> int:
    url = os.environ["DATABASE"]
    asyncio.run(make_tables(url))
    block = runpy.run_path(program)["block"]
    try:
        if inspect.iscoroutinefunction(block) or any(GIVEN[name][1] for name in names):
            asyncio.run(called(block, url, names))
        else:
            block(*(url for _ in names))  # without an event loop
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
