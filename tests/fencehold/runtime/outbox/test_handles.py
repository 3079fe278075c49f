"""A handle made for each request, as web programs do, costs what one handle costs: counted, not believed."""

import asyncio
import os
import threading

import psycopg
import pytest

import fencehold
from fencehold import sync
from tests.fencehold.runtime.outbox.scene import own_connection
from tests.fencehold.runtime.outbox.test_connections import has

REQUESTS = 30


async def add(store: fencehold.Store) -> None:
    await store.outbox().add("a", {})


async def add_in_transaction(store: fencehold.Store, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, application_name="mine") as mine:
        await store.outbox().add("a", {}, tx=mine)


@pytest.mark.parametrize("with_tx", [False, True], ids=["add", "add with tx"])
async def test_many_handles_share_one_connection(postgres_url: str, with_tx: bool) -> None:
    async with fencehold.connect(postgres_url) as store:
        store.outbox()
        await store.init()
        for _ in range(REQUESTS):
            await (add_in_transaction(store, postgres_url) if with_tx else add(store))
        await has(postgres_url, 2)  # leases, and the outbox
    await has(postgres_url, 0)


async def test_many_handles_share_one_thread_and_its_files(file_url: str) -> None:
    async with fencehold.connect(file_url) as store:
        store.outbox()
        await store.init()
        await add(store)
        files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        for _ in range(REQUESTS):
            await add(store)
        assert len(os.listdir("/proc/self/fd")) <= files
        assert threading.active_count() <= threads


def test_many_handles_of_the_sync_face_share_one_connection(postgres_url: str) -> None:
    with sync.connect(postgres_url) as store, own_connection(postgres_url) as mine:
        store.outbox()
        store.init()
        for _ in range(REQUESTS):
            store.outbox().add("a", {})
            store.outbox().add("a", {}, tx=mine)
        mine.commit()
        asyncio.run(has(postgres_url, 2))  # leases, and the outbox
        assert store.outbox().stats().pending == 2 * REQUESTS


async def test_handles_leave_nothing_in_the_store_and_each_name_is_made_by_init(file_url: str) -> None:
    async with fencehold.connect(file_url) as store:
        for _ in range(REQUESTS):
            store.outbox("orders")
            store.outbox("invoices")
        await store.init()
        assert await store.outbox("orders").add("a", {})
        assert await store.outbox("invoices").add("a", {})
        assert len(store._outboxes) == 2


def test_event_loops_that_have_ended_leave_no_connection(postgres_url: str) -> None:
    """As when each request is an `asyncio.run` of its own, with one store for all."""
    store = fencehold.connect(postgres_url)
    asyncio.run(store.open())
    store.outbox()
    asyncio.run(store.init())
    for _ in range(REQUESTS):
        asyncio.run(add(store))
    asyncio.run(has(postgres_url, 2))  # leases, and the outbox in the last loop
    asyncio.run(store.close())


async def test_a_handle_that_is_closed_leaves_the_connection_to_the_others(file_url: str) -> None:
    async with fencehold.connect(file_url) as store:
        one, other = store.outbox(), store.outbox()
        await store.init()
        await one.add("a", {})
        await other.add("a", {})
        await one.close()
        await other.add("a", {})
        await other.close()
        assert (await one.stats()).pending == 3
