"""What `init` would make is named before it is made, and nothing is changed by asking."""

import sqlite3
from pathlib import Path

import psycopg
import pytest

import fencehold
import fencehold.sync


@pytest.fixture(params=["sqlite", "postgres", "mssql"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


async def test_what_is_declared_is_missing_until_it_is_made(url: str) -> None:
    if url.startswith("sqlite"):
        sqlite3.connect(url.removeprefix("sqlite:///")).close()
        Path(url.removeprefix("sqlite:///")).touch()
    async with fencehold.connect(url) as store:
        assert "fencehold_leases" in await store.missing()
        await store.init()
        assert await store.missing() == []
        store.outbox("orders")
        store.items("negotiation")
        assert {"orders", "fencehold_items"} <= set(await store.missing())
        await store.init()
        assert await store.missing() == []


async def test_a_part_of_a_table_is_missing_by_its_name(postgres_url: str) -> None:
    async with fencehold.connect(postgres_url) as store:
        await store.init()
        with psycopg.connect(postgres_url) as connection:
            connection.execute("ALTER TABLE fencehold_leases DROP COLUMN renewed_at CASCADE")
        assert await store.missing() == ["fencehold_leases.renewed_at"]


def test_without_an_event_loop_it_is_the_same(sqlite_url: str) -> None:
    Path(sqlite_url.removeprefix("sqlite:///")).touch()
    with fencehold.sync.connect(sqlite_url) as store:
        assert "fencehold_leases" in store.missing()
        store.init()
        assert store.missing() == []
