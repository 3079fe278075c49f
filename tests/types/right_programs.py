"""Everyday code. Both type checkers accept every line of it; nothing here is run."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import sqlite3
import uuid
from collections.abc import Sequence
from typing import Any, TypedDict, assert_type

import aiosqlite
import asyncpg  # type: ignore[import-untyped]
import mssql_python
import psycopg
import psycopg.sql
import sqlmodel
from django.db import connection as django_connection  # type: ignore[import-untyped]
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

import fencehold
import fencehold.sync
import pgleaderlock


class Order(TypedDict):
    id: int
    lines: list[str]


# Leaders


async def job(term: fencehold.Term) -> int:
    return term.epoch


class Job:
    async def __call__(self, term: fencehold.Term) -> None: ...

    async def named(self, kind: str, term: fencehold.Term) -> str:
        return kind


async def lead(store: fencehold.Store, stop: asyncio.Event) -> None:
    assert_type(await store.run_as_leader("a", job, lease="30s", stop=stop, on_error="drop"), int | None)
    await store.run_as_leader("a", Job())
    assert_type(await store.run_as_leader("a", functools.partial(Job().named, "x")), str | None)
    leader = store.leader("a", lease=dt.timedelta(seconds=30), retry_strategy=fencehold.FixedInterval(1.0))

    @leader.on_acquired
    def acquired() -> None: ...

    @leader.on_lost
    async def lost() -> None: ...

    @leader.on_error
    def wrong(error: Exception) -> None: ...

    acquired()
    await lost()
    wrong(ValueError())
    async for term in leader.terms():
        async with term, term.transaction() as tx:
            cursor = await tx.execute("SELECT id, name FROM report WHERE id = ?", (7,))
            for row in await cursor.fetchall():
                print(row[0].upper(), cursor.rowcount + 1)
            name: str = (await cursor.fetchone())[0]
            await tx.execute(psycopg.sql.SQL("SELECT {}").format(psycopg.sql.Literal(name)), {"name": name})
            tx.connection.anything_of_the_driver()


async def fence_everything(
    term: fencehold.Term,
    plain: tuple[sqlite3.Connection, psycopg.Connection, mssql_python.Connection],
    session: tuple[Session, scoped_session[Session], Connection, sqlmodel.Session],
    awaited: tuple[psycopg.AsyncConnection, aiosqlite.Connection],
    async_session: tuple[AsyncSession, AsyncConnection, async_scoped_session[AsyncSession]],
    pool: asyncpg.Pool,
) -> None:
    for one in plain:
        term.fence(one)
    for two in session:
        term.fence(two)
    term.fence(django_connection)
    for three in awaited:
        await term.fence(three)
    for four in async_session:
        await term.fence(four)
    async with pool.acquire() as lent:
        await term.fence(lent)


# The outbox


async def handle(event: fencehold.Event) -> None:
    print(event.payload["id"] + 1, event.payload["lines"][0].upper(), event.metadata["who"])


async def handle_order(event: fencehold.Event[Order]) -> None:
    assert_type(event.payload["id"], int)


async def handle_with(event: fencehold.Event, outbox: fencehold.Outbox) -> None: ...


def handle_on_a_thread(event: fencehold.Event) -> None: ...


async def handle_many(events: Sequence[fencehold.Event]) -> None: ...


def count(total: int) -> None: ...


async def work(outbox: fencehold.Outbox, conn: sqlite3.Connection, order: Order) -> None:
    ids, plain = [1, 2], {"id": 7}
    for payload in (plain, ids, order, None, "text", 7.5):
        await outbox.add("order.created", payload)
    await outbox.add("order.created", {"id": 7, "lines": ids, "order": order, "pair": (1, None)}, tx=conn)
    mixed: fencehold.Json = {"id": 7, "lines": ["a"]}
    await outbox.add("order.created", mixed, not_before="10m", tracking_id=uuid.uuid4(), metadata={"who": "me"})
    untyped = {"id": 7, "name": "x", "lines": [{"id": 8, "price": 1.5}]}
    await outbox.add("order.created", untyped, metadata=untyped)
    await outbox.add("order.created", {"orders": [untyped, untyped]})
    await outbox.add_many([("a", untyped), {"event_type": "a", "payload": untyped}])
    await outbox.add_many([("a", 1), ("a", plain), {"event_type": "a", "payload": order, "priority": 3}], tx=conn)
    outbox.worker(handle, concurrency=10, saturated=lambda: False)
    outbox.worker(handle_order)
    outbox.worker({"order.created": handle_order, "order.paid": handle_on_a_thread, "*": handle})
    outbox.worker(lambda event: handle_with(event, outbox))
    outbox.worker(functools.partial(print, "event"))
    outbox.worker(handle_many, batch_size=10)
    for event in await outbox.claim(10, "me"):
        await outbox.first_time(event, "me", tx=conn)
        await outbox.complete(event)
    await outbox.purge("30d", statuses=[fencehold.Status.COMPLETED], on_progress=count)


# Items


async def move(item: fencehold.Item) -> None:
    await item.save(state="AGREED", document={**item.document, "price": item.document["asset"] * 3})


async def move_order(item: fencehold.Item[Order]) -> None:
    assert_type(item.document["lines"], list[str])
    await item.save(document=item.document)


async def negotiate(items: fencehold.Items) -> None:
    items.process("REQUESTED", move, concurrency=5)
    items.process("REQUESTED", move_order)
    for view in await items.find("AGREED"):
        print(view.document["price"])


# Without an event loop


def sync_job(term: fencehold.sync.Term) -> str:
    with term.transaction() as tx:
        return str([row[0] for row in tx.execute("SELECT 1")] + tx.execute("SELECT 1").fetchmany(5))


def sync_any(term: fencehold.sync.Term) -> Any: ...


def sync_handle(event: fencehold.Event) -> None: ...


def sync_handle_many(events: list[fencehold.Event[Order]]) -> None: ...


def sync_move(item: fencehold.sync.Item[Order]) -> None:
    item.save(state="AGREED", document=item.document)


def without_loop(url: str, conn: sqlite3.Connection) -> None:
    with fencehold.sync.connect(url, open_timeout="5s") as store:
        assert_type(store.run_as_leader("a", sync_job, lease="30s", on_error="retry"), str | None)
        store.run_as_leader("a", sync_any)
        store.run_as_leader("a", lambda term: print(term.epoch))
        outbox = store.outbox(lease="30s", ordered=True)
        outbox.add("a", {"id": 7}, tx=conn, priority=3)
        outbox.worker(sync_handle, concurrency=3).run()
        outbox.worker(sync_handle_many, batch_size=3, give_up_after="1m")
        store.items("a").process("REQUESTED", sync_move, batch=3).run()
        for term in store.leader("a", lease=30).terms():
            term.fence(conn)
            print(term.expires_at.isoformat(), term.guard().sql)


# Locks


async def lock(dsn: str) -> None:
    service = pgleaderlock.LeaderLock.for_name(dsn, "service", health_interval_s=2.0)

    @service.on_state_change
    def changed(old: pgleaderlock.LockState, new: pgleaderlock.LockState) -> None: ...

    changed(pgleaderlock.LockState.STOPPED, pgleaderlock.LockState.FOLLOWER)
    if service.term is not None:
        async with service.term.transaction() as tx:
            await tx.execute("SELECT 1")
