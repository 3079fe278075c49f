"""Each test of the stores runs on every database, unless it is about one of them.

`url` names a database that may have the tables already, and nothing in them; `empty_url` one without any. All tests on
one server share one database: to make one for each would take longer than the tests.
"""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import fresh_database
from tests.servers.sqlserver import SqlServer, open_connection
from tests.submission_manager.service_url import must_have_row_versions

DATABASES = ("sqlite", "postgres", "sqlserver")


class Shared:
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._url: str | None = None
        self._sqlserver_url: str | None = None

    def url(self, server: Any) -> str:
        if self._url is None:
            self._url = self._stack.enter_context(fresh_database(server))
        with psycopg.connect(self._url) as connection:
            if connection.execute("SELECT to_regclass('submission_intents')").fetchone() != (None,):
                connection.execute("TRUNCATE submission_intents, submission_attempts")
        return self._url

    def sqlserver_url(self, server: SqlServer) -> str:
        self._sqlserver_url = self._sqlserver_url or server.fresh_database()
        with contextlib.closing(open_connection(self._sqlserver_url)) as connection:
            if connection.cursor().execute("SELECT OBJECT_ID('submission_intents')").fetchall()[0][0] is not None:
                connection.cursor().execute("DELETE FROM submission_attempts; DELETE FROM submission_intents")
        return self._sqlserver_url


@pytest.fixture(scope="session")
def shared(servers: Any) -> Iterator[Shared]:
    with ExitStack() as stack:
        yield Shared(stack)


@pytest.fixture
def tables_url(postgres_server: Any, shared: Shared) -> str:
    return shared.url(postgres_server)


@pytest.fixture
def sqlserver_tables_url(mssql_server: SqlServer, shared: Shared, request: pytest.FixtureRequest) -> str:
    must_have_row_versions(mssql_server, request.config)
    return shared.sqlserver_url(mssql_server)


@pytest.fixture
def empty_sqlserver_url(mssql_server: SqlServer, request: pytest.FixtureRequest) -> str:
    must_have_row_versions(mssql_server, request.config)
    return mssql_server.emptied()


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    named = {"sqlite": "sqlite_url", "postgres": "tables_url", "sqlserver": "sqlserver_tables_url"}
    address: str = request.getfixturevalue(named[request.param])
    return address


@pytest.fixture(params=["sqlite", "postgres"])
def local_url(request: pytest.FixtureRequest) -> str:
    """For what looks behind a store that is driven step by step."""
    address: str = request.getfixturevalue({"sqlite": "sqlite_url", "postgres": "tables_url"}[request.param])
    return address


@pytest.fixture(params=DATABASES)
def empty_url(request: pytest.FixtureRequest) -> str:
    named = {"sqlite": "sqlite_url", "postgres": "postgres_url", "sqlserver": "empty_sqlserver_url"}
    address: str = request.getfixturevalue(named[request.param])
    return address
