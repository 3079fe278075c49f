"""Each test of the stores runs on both databases, unless it is about one of them.

`url` names a database that may have the tables already, and nothing in them; `empty_url` one without any. All tests on
PostgreSQL share one database: to make one for each would take longer than the tests.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import fresh_database


class Shared:
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._url: str | None = None

    def url(self, server: Any) -> str:
        if self._url is None:
            self._url = self._stack.enter_context(fresh_database(server))
        with psycopg.connect(self._url) as connection:
            if connection.execute("SELECT to_regclass('submission_intents')").fetchone() != (None,):
                connection.execute("TRUNCATE submission_intents, submission_attempts")
        return self._url


@pytest.fixture(scope="session")
def shared(servers: Any) -> Iterator[Shared]:
    with ExitStack() as stack:
        yield Shared(stack)


@pytest.fixture
def tables_url(postgres_server: Any, shared: Shared) -> str:
    return shared.url(postgres_server)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "tables_url")
    return address


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address
