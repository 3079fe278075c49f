"""Mistakes. Each line that ends in `# wrong:` is one, and both type checkers report it, as what stands behind (mypy's
code, pyright's rule); of every other line they report nothing. Nothing here is run.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import sqlite3
from typing import TypedDict

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession

import fencehold
import fencehold.sync
import pgleaderlock


class Order(TypedDict):
    id: int


# Leaders


async def job(term: fencehold.Term) -> None: ...


async def job_without_parameter() -> None: ...


def plain_job(term: fencehold.Term) -> None: ...


async def lead(store: fencehold.Store, leader: fencehold.Leader) -> None:
    store.leader("a", on_error="explode")  # wrong: arg-type reportArgumentType
    store.leader("a", leese="30s")  # wrong: call-arg reportCallIssue
    await store.run_as_leader("a", job, on_error="explode")  # wrong: arg-type reportArgumentType
    await store.run_as_leader("a", job, leese="30s")  # wrong: call-arg reportCallIssue
    await store.run_as_leader("a", job_without_parameter)  # wrong: arg-type reportArgumentType
    await store.run_as_leader("a", plain_job)  # wrong: arg-type reportArgumentType
    store.run_as_leader("a", job)  # wrong: unused-coroutine reportUnusedCoroutine
    leader.on_acquired(job)  # wrong: type-var reportArgumentType
    leader.on_error(job_without_parameter)  # wrong: type-var reportArgumentType
    with store.leader("a"):  # wrong: attr-defined reportGeneralTypeIssues
        pass


async def write(term: fencehold.Term, engine: sqlalchemy.Engine) -> None:
    print(term.epocj)  # wrong: attr-defined reportAttributeAccessIssue
    async with term.transaction() as tx:
        await tx.execut("SELECT 1")  # wrong: attr-defined reportAttributeAccessIssue
        await tx.execute(7)  # wrong: arg-type reportArgumentType
        await tx.execute(sqlalchemy.text("SELECT 1"))  # wrong: arg-type reportArgumentType
        tx.execute("SELECT 1")  # wrong: unused-coroutine reportUnusedCoroutine
        await tx.commit()  # wrong: attr-defined reportAttributeAccessIssue
        cursor = await tx.execute("SELECT 1")
        cursor.fetch_one()  # wrong: attr-defined reportAttributeAccessIssue
        cursor.fetchall()[0]  # wrong: index reportIndexIssue
        term.fence(tx)  # wrong: call-overload reportArgumentType
    with term.transaction():  # wrong: attr-defined reportGeneralTypeIssues
        pass
    term.fence(engine)  # wrong: call-overload reportArgumentType
    term.fence("postgresql://user@host/db")  # wrong: call-overload reportArgumentType


async def fence(term: fencehold.Term, connection: psycopg.AsyncConnection, session: AsyncSession) -> None:
    term.fence(connection)  # wrong: unused-coroutine reportUnusedCoroutine
    term.fence(session)  # wrong: unused-coroutine reportUnusedCoroutine


# The outbox


async def handle(event: fencehold.Event) -> None: ...


async def handle_nothing() -> None: ...


async def handle_two(event: fencehold.Event, store: fencehold.Store) -> None: ...


async def handle_order(event: fencehold.Event[Order]) -> None:
    print(event.payload["idd"])  # wrong: typeddict-item reportGeneralTypeIssues


async def handle_many(events: list[fencehold.Event]) -> None: ...


def says_whether(event: fencehold.Event) -> bool:
    return False


async def is_full() -> bool:
    return False


async def work(outbox: fencehold.Outbox, session: AsyncSession, cursor: sqlite3.Cursor) -> None:
    outbox.worker(handle_nothing)  # wrong: arg-type reportArgumentType
    outbox.worker(handle_two)  # wrong: arg-type reportArgumentType
    outbox.worker({"a": handle, "b": handle_nothing})  # wrong: dict-item reportArgumentType
    outbox.worker(handle, batch_size=10)  # wrong: arg-type reportArgumentType
    outbox.worker(handle_many)  # wrong: arg-type reportArgumentType
    outbox.worker(says_whether)  # wrong: arg-type reportArgumentType
    outbox.worker(handle, saturated=is_full)  # wrong: arg-type reportArgumentType
    outbox.worker(handle).run()  # wrong: unused-coroutine reportUnusedCoroutine
    outbox.add("a", {})  # wrong: unused-coroutine reportUnusedCoroutine
    await outbox.add("a", {"at": dt.datetime.now(dt.UTC)})  # wrong: arg-type reportArgumentType
    await outbox.add("a", [decimal.Decimal(1)])  # wrong: list-item reportArgumentType
    await outbox.add("a", b"bytes")  # wrong: arg-type reportArgumentType
    await outbox.add("a", {1, 2})  # wrong: arg-type reportArgumentType
    await outbox.add("a", {7: "key"})  # wrong: arg-type reportArgumentType
    await outbox.add("a", {"id": 7, "at": dt.datetime.now(dt.UTC)})  # wrong: arg-type reportArgumentType
    await outbox.add("a", {"inner": {"id": 7, "at": dt.date.max}})  # wrong: arg-type reportArgumentType
    dates = {"from": dt.date.min, "to": dt.date.max}
    await outbox.add("a", dates)  # wrong: arg-type reportArgumentType
    await outbox.add("a", {}, metadata=dates)  # wrong: arg-type reportArgumentType
    await outbox.add("a", {}, metadata="me")  # wrong: arg-type reportArgumentType
    await outbox.add("a", {}, not_before=[])  # wrong: arg-type reportArgumentType
    await outbox.add("a", {}, tx=cursor)  # wrong: arg-type reportArgumentType
    await outbox.add_many([("a", {1, 2})])  # wrong: list-item reportArgumentType
    await outbox.purge("30d", statuses=["COMPLETED"])  # wrong: list-item reportArgumentType


# Items


async def move(item: fencehold.Item) -> None:
    item.save(state="AGREED")  # wrong: unused-coroutine reportUnusedCoroutine
    await item.save(document=dt.date.today())  # noqa: DTZ011 # wrong: arg-type reportArgumentType
    print(item.documnt)  # wrong: attr-defined reportAttributeAccessIssue


async def negotiate(items: fencehold.Items) -> None:
    items.process("REQUESTED", handle)  # wrong: arg-type reportArgumentType
    items.process("REQUESTED", handle_nothing)  # wrong: arg-type reportArgumentType


# Without an event loop


async def async_job(term: fencehold.sync.Term) -> None: ...


def sync_job(term: fencehold.sync.Term) -> None:
    print(term.epocj)  # wrong: attr-defined reportAttributeAccessIssue
    with term.transaction() as tx:
        tx.execut("SELECT 1")  # wrong: attr-defined reportAttributeAccessIssue
        tx.execute("SELECT 1").fetch_one()  # wrong: attr-defined reportAttributeAccessIssue


def sync_job_without_parameter() -> None: ...


def sync_move(item: fencehold.sync.Item) -> None:
    print(item.documnt)  # wrong: attr-defined reportAttributeAccessIssue


async def awaits(store: fencehold.sync.Store) -> None:
    await store.init()  # wrong: misc reportGeneralTypeIssues


def without_loop(store: fencehold.sync.Store, connection: psycopg.AsyncConnection, term: fencehold.sync.Term) -> None:
    fencehold.sync.connect("sqlite:///a.db", tabel="a")  # wrong: call-arg reportCallIssue
    store.leader("a", on_error="explode")  # wrong: arg-type reportArgumentType
    store.run_as_leader("a", sync_job_without_parameter)  # wrong: arg-type reportArgumentType
    store.run_as_leader("a", async_job)  # wrong: unused-coroutine reportUnusedCoroutine
    store.run_as_leader("a", sync_job, stop=asyncio.Event())  # wrong: call-overload reportArgumentType
    store.leader("a").on_lost(handle_nothing)  # wrong: type-var reportArgumentType
    store.outbox(leese="30s")  # wrong: call-arg reportCallIssue
    outbox = store.outbox()
    outbox.worker(handle)  # wrong: arg-type reportArgumentType
    outbox.worker(handle_many, batch_size=10)  # wrong: arg-type reportArgumentType
    outbox.add("a", {}, tx=connection)  # wrong: arg-type reportArgumentType
    outbox.add("a", {}, priorty=3)  # wrong: call-arg reportCallIssue
    term.fence(connection)  # wrong: arg-type reportArgumentType
    store.items("a").process("REQUESTED", handle)  # wrong: arg-type reportArgumentType


# Locks


async def lock(service: pgleaderlock.LeaderLock) -> None:
    service.on_acquired(job)  # wrong: type-var reportArgumentType
    service.wait_for_leadership()  # wrong: unused-coroutine reportUnusedCoroutine
    pgleaderlock.LeaderLock.for_name("postgresql://", "a", helth_interval_s=2.0)  # wrong: call-arg reportCallIssue
