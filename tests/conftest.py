"""What every test may use: real servers, a time limit, and a last word on what was not run.

| fixture                | gives                                                                                   |
| ---------------------- | --------------------------------------------------------------------------------------- |
| `postgres_server`      | the session's newest PostgreSQL (or the one in FENCEHOLD_TEST_POSTGRES_URL), running    |
| `every_postgres`       | the same, once for each major version; the oldest promised one is always asked for      |
| `postgres_url`         | an empty database on `postgres_server`, dropped afterwards                              |
| `every_postgres_url`   | an empty database on `every_postgres`                                                   |
| `own_postgres`         | a server of this test's own, to kill, freeze and restart                                |
| `own_pgbouncer`        | `make(server, mode)` starts a PgBouncer in front of a server; stopped afterwards        |
| `cosmos_server`        | the session's stand-in for Cosmos DB, running, its clock and answers as they should be  |
| `cosmos_url`           | the address of a database of this test's own on it                                      |
| `mssql_server`         | the SQL Server in FENCEHOLD_TEST_MSSQL_URL; no registry brings one                      |
| `mssql_database`       | the address of the session's own database on it, as earlier tests left it               |
| `mssql_url`            | the same address, and nothing left in the database                                      |
| `sqlite_url`           | an address of a SQLite file that does not exist yet                                     |
| `checked_without_server` | `checked_without_server(text)`: the last lines say so, beside that SQL Server was not run |

Tests may be `async def`. `@pytest.mark.limit(seconds)` changes the limit of 60 s. `@pytest.mark.needs("spin")` names
what a test cannot do without: absent, the test is not run and the last lines say so; with CI=true it fails.
What no package brings (`not_here`: SQL Server, a control group) is no failure under CI; the last lines say so too.
`@pytest.mark.long` is for what takes longer than a few seconds: such tests run with CI=true or `--long` only, and the
last lines say how many were not run. A test that uses a real server gets a mark of its name (tests/servers/marks.py).
"""

import functools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.servers import marks
from tests.servers.cosmos import CosmosServer
from tests.servers.limits import limited, stretched
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import AnyPostgres, GivenServer, PostgresServer, binaries_of, fresh_database, majors
from tests.servers.programs import Missing, find, reason
from tests.servers.sqlserver import VARIABLE as MSSQL_VARIABLE
from tests.servers.sqlserver import SqlServer
from tools import last_lines

GIVEN = os.environ.get("FENCEHOLD_TEST_POSTGRES_URL")
GIVEN_MSSQL = os.environ.get(MSSQL_VARIABLE)
CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
TALLY = pytest.StashKey[last_lines.Tally]()

# A run that a script started in the background ignores Ctrl-C, and so would every command that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Time limits and async tests


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Runs the test itself, sync or async, so that the limit holds for both."""
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    marker = pyfuncitem.get_closest_marker("limit")
    limit_s = stretched(float(marker.args[0]) if marker else 60.0)
    if pyfuncitem.config.getoption("usepdb"):
        limit_s = 24 * 3600.0
    limited(pyfuncitem.obj, arguments, limit_s)
    return True


# What is not here


def pytest_addoption(parser: pytest.Parser) -> None:
    # One part of a run leaves to the whole what is to be its last word (tools/run_tests.py).
    parser.addoption("--tally", metavar="FILE", type=Path, default=None, help="tell it here, not at the end")
    parser.addoption("--long", action="store_true", default=CI, help="also the tests marked long (always with CI=true)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = last_lines.Tally()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """A mark for each real server that the test uses, before `-m` is looked at."""
    for mark in sorted(marks.of(item)):
        item.add_marker(mark)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests are left out of a short run; nothing is left out in silence."""
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.stash[TALLY].long_not_run += len(left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    marks.begin(item)
    asked = getattr(getattr(item, "callspec", None), "params", {})
    chosen = any(name.endswith("url") and asked[name] == "mssql" for name in asked)  # any_url and its like
    if chosen or "mssql_server" in getattr(item, "fixturenames", ()):
        asks_sql_server(item.config)
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            if find(name) is None:
                not_run(item.config, Missing(name, reason(name)))


def not_run(config: pytest.Config, missing: Missing) -> NoReturn:
    """Under CI a test that could not run is a failure: a green run must mean that everything ran."""
    if CI:
        text = f"{missing.name} is missing ({missing.reason}), and CI runs every test"
        raise pytest.fail.Exception(text, pytrace=False) from None
    not_here(config, missing)


def not_here(config: pytest.Config, missing: Missing) -> NoReturn:
    """What only the machine itself can give: without it a test is not run, under CI too. The last lines say so."""
    config.stash[TALLY].miss(str(missing))
    pytest.skip(str(missing))


def asks_sql_server(config: pytest.Config) -> None:
    """Without one a test is not run, under CI too: nobody could bring one. The last lines say so."""
    if not GIVEN_MSSQL:
        config.stash[TALLY].not_run += 1
        pytest.skip(f"SQL Server ({MSSQL_VARIABLE} is not set)")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    yield
    for line in last_lines.skipped(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line, yellow=True)
    tally, elsewhere = config.stash[TALLY], config.getoption("--tally")
    if elsewhere is not None:
        counts = {name: len(reports) for name, reports in terminalreporter.stats.items()}
        tally.passed, tally.skipped = counts.get("passed", 0), counts.get("skipped", 0)
        tally.failed = counts.get("failed", 0) + counts.get("error", 0)
        tally.append_to(elsewhere)
        return
    for line in last_lines.lines(tally):
        terminalreporter.write_line(line, yellow="NOT RUN" in line)


# Servers


class Servers:
    """Starts each PostgreSQL version at most once in a session, when the first test asks for it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[int | str, AnyPostgres] = {}

    def get(self, which: int | str) -> AnyPostgres:
        marks.must_have("postgres")
        if which not in self._running:
            self._running[which] = GivenServer(str(GIVEN)) if which == "given" else self._start(int(which))
        return self._running[which]

    def _start(self, major: int) -> PostgresServer:
        server = PostgresServer.of(binaries_of(major))
        self._stack.callback(server.close)
        server.start()
        return server


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "every_postgres" in metafunc.fixturenames:
        which: list[int | str] = [*(["given"] if GIVEN else []), *majors()]
        metafunc.parametrize("every_postgres", which, indirect=True, ids=[f"pg-{one}" for one in which])


@pytest.fixture
def postgres_server(servers: Servers, request: pytest.FixtureRequest) -> AnyPostgres:
    try:
        return servers.get("given" if GIVEN else binaries_of().major)
    except Missing as missing:
        not_run(request.config, missing)


@pytest.fixture
def every_postgres(servers: Servers, request: pytest.FixtureRequest) -> AnyPostgres:
    try:
        return servers.get(request.param)
    except Missing as missing:
        not_run(request.config, missing)


@pytest.fixture
def postgres_url(postgres_server: AnyPostgres) -> Iterator[str]:
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def every_postgres_url(every_postgres: AnyPostgres) -> Iterator[str]:
    with fresh_database(every_postgres) as url:
        yield url


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    try:
        server = PostgresServer.of(binaries_of())
    except Missing as missing:
        not_run(request.config, missing)
    with ExitStack() as stack:
        stack.callback(server.close)
        server.start()
        yield server


@pytest.fixture
def own_pgbouncer(request: pytest.FixtureRequest) -> Iterator[Callable[..., PgBouncer]]:
    with ExitStack() as stack:

        def make(server: PostgresServer, mode: Any = "transaction", **settings: Any) -> PgBouncer:
            try:
                bouncer = PgBouncer(server, mode, **settings)
            except Missing as missing:
                not_run(request.config, missing)
            stack.callback(bouncer.close)
            bouncer.start()
            return bouncer

        yield make


@pytest.fixture(scope="session")
def started_cosmos() -> Iterator[Callable[[], CosmosServer]]:
    with ExitStack() as stack:

        @functools.cache
        def started() -> CosmosServer:
            server = CosmosServer()
            stack.callback(server.close)
            server.start()
            return server

        yield started


@pytest.fixture
def cosmos_server(started_cosmos: Callable[[], CosmosServer], request: pytest.FixtureRequest) -> Iterator[CosmosServer]:
    marks.must_have("cosmos")
    try:
        server = started_cosmos()
    except Missing as missing:
        not_run(request.config, missing)
    yield server
    server.behave()


@pytest.fixture
def cosmos_url(cosmos_server: CosmosServer) -> str:
    return cosmos_server.url()


@pytest.fixture(scope="session")
def given_mssql() -> Iterator[Callable[[], SqlServer]]:
    with ExitStack() as stack:

        @functools.cache
        def given() -> SqlServer:
            server = SqlServer(str(GIVEN_MSSQL))
            stack.callback(server.close)
            return server

        yield given


@pytest.fixture
def mssql_server(given_mssql: Callable[[], SqlServer], request: pytest.FixtureRequest) -> SqlServer:
    marks.must_have("sqlserver")
    asks_sql_server(request.config)
    server = given_mssql()
    tally = request.config.stash[TALLY]
    tally.run += 1
    tally.version = server.version
    return server


@pytest.fixture
def mssql_database(mssql_server: SqlServer) -> str:
    return mssql_server.database()


@pytest.fixture
def mssql_url(mssql_server: SqlServer) -> str:
    return mssql_server.emptied()


@pytest.fixture(scope="session")
def checked_without_server(request: pytest.FixtureRequest) -> Callable[[str], None]:
    return request.config.stash[TALLY].checked.append


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'fencehold.db'}"
