"""`url`: an empty database, once on PostgreSQL and once on SQLite. `opened`: a store on it, and what it tells."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest

import fencehold
from tests.conftest import Servers
from tests.outbox.scene import Heard
from tests.servers.postgres import AnyPostgres, fresh_database

Opened = Callable[..., AbstractAsyncContextManager[tuple[fencehold.Outbox, Heard]]]


@pytest.fixture(scope="session")
def databases(servers: Servers) -> Iterator[dict[str, str]]:
    """Made by the first test that needs it: a schema costs a hundredth of a database."""
    with contextmanager(_databases)() as made:
        yield made


def _databases() -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = {}
    try:
        yield made
    finally:
        if "closing" in made:
            made["closing"].__exit__(None, None, None)


@pytest.fixture
def schema_url(postgres_server: AnyPostgres, databases: dict[str, Any]) -> Iterator[str]:
    """A schema of its own in one PostgreSQL database for all of these tests."""
    if "url" not in databases:
        databases["closing"] = fresh_database(postgres_server)
        databases["url"] = databases["closing"].__enter__()
    name = f"s_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(databases["url"], autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{databases['url']}?options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("schema_url" if request.param == "postgres" else "sqlite_url"))


@pytest.fixture
def opened() -> Opened:
    """`async with opened(url, lease="1s") as (outbox, heard):` an open store with its tables made."""

    @asynccontextmanager
    async def open_at(url: str, **settings: Any) -> AsyncIterator[tuple[fencehold.Outbox, Heard]]:
        heard = Heard()
        async with fencehold.connect(url, facts=heard) as store:
            outbox = store.outbox(**settings)
            await store.init()
            yield outbox, heard

    return open_at
