"""The ground the other tests stand on: servers start, die and come back, and the limits hold."""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.servers.limits import stretched
from tools import last_lines

ROOT = Path(__file__).resolve().parents[2]


def test_each_database_is_empty_and_on_the_version_asked_for(every_postgres, every_postgres_url):
    with psycopg.connect(every_postgres_url) as conn:
        assert conn.info.server_version // 10_000 == every_postgres.version
        tables = conn.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        fsync = conn.execute("SHOW fsync").fetchone()
    assert (tables, fsync) == ((0,), ("on",))


def test_a_server_killed_with_minus_nine_keeps_what_was_committed_and_restarts_at_once(own_postgres):
    with psycopg.connect(own_postgres.dsn(), autocommit=True) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 7 AS n")
        own_postgres.kill9()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    own_postgres.start()
    with psycopg.connect(own_postgres.dsn()) as conn:
        assert conn.execute("SELECT n FROM kept").fetchone() == (7,)


def test_a_frozen_server_holds_its_connections_and_goes_on_when_thawed(own_postgres):
    own_postgres.freeze()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_postgres.dsn(), connect_timeout=2)
    own_postgres.thaw()
    assert own_postgres.answers()


async def test_a_server_restarted_from_a_worker_thread_outlives_that_thread(own_postgres):
    await asyncio.to_thread(own_postgres.restart)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert own_postgres.answers()


@pytest.mark.needs("pgbouncer")
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_pgbouncer_answers_in_front_of_a_server(own_postgres, own_pgbouncer, mode):
    bouncer = own_pgbouncer(own_postgres, mode)
    with psycopg.connect(bouncer.dsn()) as conn:
        row = conn.execute("SELECT current_setting('port')::int").fetchone()
    assert row == (own_postgres.port,)


@pytest.fixture
def reachable_folder() -> Iterator[Path]:
    """A folder the server's account can enter; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="fh-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.postgres
def test_a_server_dies_with_a_test_run_that_is_killed(reachable_folder):
    program = """
        import time
        from tests.servers.postgres import PostgresServer, binaries_of
        server = PostgresServer.of(binaries_of())
        server.start()
        print(server.pid, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "TMPDIR": str(reachable_folder)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        server = psutil.Process(int(run.stdout.readline()))
        run.kill()
    server.wait(timeout=20)


def pytest_in(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own over one file, under this project's conftest and settings."""
    (folder / "test_it.py").write_text(textwrap.dedent(text))
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    places = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *places, str(folder / "test_it.py")],
        cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "async def test_it():\n    await asyncio.sleep(30)",
        "async def test_it():\n    time.sleep(30)",
        "def test_it():\n    threading.Event().wait(30)",
    ],
    ids=["waiting", "loop blocked", "thread blocked"],
)
def test_a_test_past_its_limit_fails_and_shows_where_it_stands(tmp_path, body):
    head = "import asyncio, time, threading, pytest\n\n@pytest.mark.limit(0.5)\n"
    answer = pytest_in(tmp_path, head + body)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert re.search(r"took longer than [0-9.]+ s", answer.stdout)
    assert 'test_it.py", line ' in answer.stdout
    assert "1 failed" in answer.stdout


@pytest.mark.parametrize(("load", "limit_s"), [(0.1, 60.0), (4.0, 60.0), (8.0, 120.0), (90.0, 240.0)])
def test_a_limit_is_longer_while_the_machine_is_busy(monkeypatch, load: float, limit_s: float):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert stretched(60.0) == limit_s


def test_an_async_test_that_fails_is_a_failure(tmp_path):
    answer = pytest_in(tmp_path, "async def test_it():\n    assert 1 == 2")
    assert answer.returncode == 1
    assert "1 failed" in answer.stdout


NEEDY = """
    import pytest

    @pytest.mark.needs("no-such-program")
    def test_it():
        pass
"""


def test_the_last_lines_name_what_was_not_run(tmp_path):
    answer = pytest_in(tmp_path, NEEDY)
    assert answer.returncode == 0
    assert "NOT RUN: no-such-program (not installed): 1 test" in answer.stdout.splitlines()[-2]


def test_under_ci_a_missing_program_is_a_failure(tmp_path):
    answer = pytest_in(tmp_path, NEEDY, CI="true")
    assert answer.returncode == 1
    assert "no-such-program is missing" in answer.stdout


ASKS_THE_MACHINE = """
    import errno, os
    from fencehold.cli.run.guardian import Cgroup
    from tests.fencehold.cli.run import control_groups

    def none():
        raise PermissionError(errno.EROFS, "Read-only file system")

    def test_it(request, monkeypatch):
        monkeypatch.setattr(Cgroup, "make", none)
        control_groups.must_be_used(request.config)
"""
NO_GROUP = "NOT RUN: a control group (none can be made here: [Errno 30] Read-only file system)"


def test_what_no_package_brings_is_named_in_the_last_lines_and_under_ci_no_failure(tmp_path):
    answer = pytest_in(tmp_path, ASKS_THE_MACHINE, CI="true")
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.splitlines()[-2] == f"{NO_GROUP}: 1 test"


ASKS_SQL_SERVER = """
    def test_it(mssql_url):
        pass

    def test_parsed(checked_without_server):
        checked_without_server("7 files parsed")
"""


def test_the_last_lines_say_that_sql_server_was_not_run_and_under_ci_it_is_no_failure(tmp_path):
    answer = pytest_in(tmp_path, ASKS_SQL_SERVER, CI="true", FENCEHOLD_TEST_MSSQL_URL="")
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.splitlines()[-3:-1] == [
        "SQL Server: checked without a server: 7 files parsed",
        "SQL Server: NOT RUN (FENCEHOLD_TEST_MSSQL_URL is not set): 1 test",
    ]


def test_the_parts_of_a_run_leave_the_last_word_to_the_whole(tmp_path):
    tally = tmp_path / "tally"
    for text in (ASKS_SQL_SERVER, ASKS_THE_MACHINE, ASKS_THE_MACHINE, ASKS_SQL_SERVER):
        asked = f"--tally={tally}"
        answer = pytest_in(tmp_path, text, FENCEHOLD_TEST_MSSQL_URL="", PYTEST_ADDOPTS=asked)
        assert "NOT RUN" not in answer.stdout
    assert last_lines.lines(last_lines.read(tally)) == [
        f"{NO_GROUP}: 2 tests",
        "SQL Server: checked without a server: 7 files parsed, 7 files parsed",
        "SQL Server: NOT RUN (FENCEHOLD_TEST_MSSQL_URL is not set): 2 tests",
    ]
