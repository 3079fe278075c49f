"""Empty databases for the tests of fencehold, on the servers of tests/conftest.py.

| fixture            | gives                                                                                        |
| ------------------ | -------------------------------------------------------------------------------------------- |
| `url`              | an empty database: once on PostgreSQL, once on SQLite, once on SQL Server where one is given |
| `pg_or_sqlite_url` | the same without SQL Server, which tells nobody of added events and has no async driver here |
| `schema_url`       | an empty schema of PostgreSQL                                                                |
| `file_url`         | a SQLite file that does not exist yet, in memory where the machine has such a folder         |
| `database_of`      | `database_of(server)`: one database per server; each harness makes a schema of its own in it |
"""

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Servers
from tests.servers.postgres import AnyPostgres, fresh_database

NO_DISK = "-csynchronous_commit%3Doff"  # no crash of the server is tested here, so nothing waits for its disk
FIXTURES = {"postgres": "schema_url", "sqlite": "file_url", "mssql": "mssql_url"}


class DatabaseOfSchemas:
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
def database_of_schemas(servers: Servers) -> Iterator[DatabaseOfSchemas]:
    with ExitStack() as stack:
        yield DatabaseOfSchemas(stack)


@pytest.fixture
def schema_url(postgres_server: AnyPostgres, database_of_schemas: DatabaseOfSchemas) -> Iterator[str]:
    url, name = database_of_schemas.begin(postgres_server), f"s_{uuid.uuid4().hex[:12]}"
    database_of_schemas.execute(f"CREATE SCHEMA {name}")
    yield f"{url}?options=-csearch_path%3D{name}%20{NO_DISK}"
    database_of_schemas.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def file_url(tmp_path: Path) -> Iterator[str]:
    """Hundreds of tests need not wait for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path) as folder:
        yield f"sqlite:///{folder}/fencehold.db"


@pytest.fixture(params=["postgres", "sqlite", pytest.param("mssql", marks=pytest.mark.limit(240))])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(FIXTURES[request.param]))


@pytest.fixture(params=["postgres", "sqlite"])
def pg_or_sqlite_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(FIXTURES[request.param]))


@pytest.fixture(scope="session")
def database_of() -> Iterator[Callable[[AnyPostgres], str]]:
    made: dict[int, str] = {}
    with ExitStack() as stack:

        def give(server: AnyPostgres) -> str:
            if id(server) not in made:
                made[id(server)] = stack.enter_context(fresh_database(server))
            return made[id(server)]

        yield give
