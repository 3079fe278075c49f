"""Commands run in this process: as real as a process of their own, and twenty times as quick to start."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from fencehold.cli.app import execute
from tests.fencehold.cli.cli_process import prepare
from tests.fencehold.cli.outbox_scene import Answer
from tests.servers.postgres import AnyPostgres, fresh_database
from tests.servers.sqlserver import SqlServer

TABLES = ("outbox", "outbox_reaper", "outbox_consumed")
EMPTY_ALL = "; ".join(f"DELETE FROM {table}" for table in TABLES)
#: Its row of the reaper is there for ever.
EMPTY_MSSQL = "DELETE FROM outbox; DELETE FROM outbox_consumed; UPDATE outbox_reaper SET ran_at = NULL, runs = 0"
DATABASES = ["sqlite", "postgres", "mssql"]


@pytest.fixture(params=DATABASES)
def any_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


class KeptDatabase:
    """One for all tests that want tables and no events: to empty it takes a hundredth of the time to make another."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._url: str | None = None
        self._mssql_url: str | None = None

    def emptied(self, server: AnyPostgres) -> str:
        if self._url is None:
            self._url = self._stack.enter_context(fresh_database(server))
            prepare(self._url)
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(EMPTY_ALL.encode())
        return self._url

    def emptied_mssql(self, server: SqlServer) -> str:
        if self._mssql_url is None:
            self._mssql_url = server.fresh_database()
            prepare(self._mssql_url)
        with server.connected(self._mssql_url) as connection:
            connection.cursor().execute(EMPTY_MSSQL)
        return self._mssql_url

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def kept_database(servers: object) -> Iterator[KeptDatabase]:
    kept = KeptDatabase()  # after `servers`, so that it is closed before them
    yield kept
    kept.close()


@pytest.fixture(params=DATABASES)
def outbox_url(request: pytest.FixtureRequest, kept_database: KeptDatabase) -> str:
    """A database with all tables and no events; leases of other tests may be there, which nobody can delete."""
    if request.param == "postgres":
        return kept_database.emptied(request.getfixturevalue("postgres_server"))
    if request.param == "mssql":
        return kept_database.emptied_mssql(request.getfixturevalue("mssql_server"))
    url = str(request.getfixturevalue("sqlite_url"))
    prepare(url)
    return url


@pytest.fixture
def cli_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """What a person would read."""
    for name in [name for name in os.environ if name.startswith("FENCEHOLD_")]:
        monkeypatch.delenv(name)

    def run(url: str | None, *arguments: str) -> Answer:
        if url is not None:
            monkeypatch.setenv("FENCEHOLD_DSN", url)
        capsys.readouterr()
        code = execute(arguments)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def cli(cli_text: Callable[..., Answer]) -> Callable[..., Answer]:
    """What a program would."""
    return lambda url, *arguments: cli_text(url, "-o", "json", *arguments)
