"""`url`: an empty database, once on PostgreSQL and once on SQLite. `opened`: a store on it, and what it tells."""

import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
from tests.conftest import Servers
from tests.outbox.scene import Heard
from tests.servers.postgres import AnyPostgres, fresh_database

Opened = Callable[..., AbstractAsyncContextManager[tuple[fencehold.Outbox, Heard]]]


class Databases:
    """One PostgreSQL database for all of these tests, made for the first of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._url = ""

    def get(self, server: AnyPostgres) -> str:
        if not self._url:
            self._url = self._stack.enter_context(fresh_database(server))
        return self._url


@pytest.fixture(scope="session")
def databases(servers: Servers) -> Iterator[Databases]:
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.fixture
def schema_url(postgres_server: AnyPostgres, databases: Databases) -> Iterator[str]:
    """An empty schema: it costs a hundredth of a database."""
    database, name = databases.get(postgres_server), f"s_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        # No crash of the server is tested here, so nothing waits for its disk.
        yield f"{database}?options=-csearch_path%3D{name}%20-csynchronous_commit%3Doff"
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


@pytest.fixture
def file_url(tmp_path: Path) -> Iterator[str]:
    """A SQLite file, in memory where the machine has such a folder: hundreds of tests need not wait for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path) as folder:
        yield f"sqlite:///{folder}/fencehold.db"


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("schema_url" if request.param == "postgres" else "file_url"))


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
