"""`url`: an empty database, once on PostgreSQL, once on SQLite, and once on SQL Server where one is given.

`pg_or_sqlite_url`: the same without SQL Server, which tells nobody of added events and has no async driver here.
`opened`: a store on it, and what it tells.
"""

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


NO_DISK = "-csynchronous_commit%3Doff"  # no crash of the server is tested here, so nothing waits for its disk


class Database:
    """One PostgreSQL database for all of these tests, made for the first of them; a schema costs far less."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._url = ""

    def begin(self, server: AnyPostgres) -> str:
        if not self._url:
            self._url = self._stack.enter_context(fresh_database(server))
            self._admin = psycopg.connect(f"{self._url}?options={NO_DISK}", autocommit=True)
            self._stack.callback(self._admin.close)
        return self._url

    def execute(self, statement: str) -> None:
        self._admin.execute(statement.encode())


@pytest.fixture(scope="session")
def database(servers: Servers) -> Iterator[Database]:
    with ExitStack() as stack:
        yield Database(stack)


@pytest.fixture
def schema_url(postgres_server: AnyPostgres, database: Database) -> Iterator[str]:
    """An empty schema."""
    url, name = database.begin(postgres_server), f"s_{uuid.uuid4().hex[:12]}"
    database.execute(f"CREATE SCHEMA {name}")
    yield f"{url}?options=-csearch_path%3D{name}%20{NO_DISK}"
    database.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def file_url(tmp_path: Path) -> Iterator[str]:
    """A SQLite file, in memory where the machine has such a folder: hundreds of tests need not wait for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path) as folder:
        yield f"sqlite:///{folder}/fencehold.db"


FIXTURES = {"postgres": "schema_url", "sqlite": "file_url", "mssql": "mssql_url"}


@pytest.fixture(params=["postgres", "sqlite", pytest.param("mssql", marks=pytest.mark.limit(240))])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(FIXTURES[request.param]))


@pytest.fixture(params=["postgres", "sqlite"])
def pg_or_sqlite_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(FIXTURES[request.param]))


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
