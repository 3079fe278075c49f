"""A test that uses a real server has its mark, so that `-m cluster` and `-m "not postgres"` select what they say."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.servers.marks import MARKS, OF_FIXTURE
from tests.servers.test_servers import pytest_in
from tests.tidy.tree import ROOT

#: Where each mark is used; to collect all tests would take much longer.
PLACES = (
    "tests/servers", "tests/across_packages/cluster", "tests/fencehold/backends/cosmos",
    "tests/submission_manager/stores", "tests/submission_manager/instance",
)  # fmt: skip
PLUGIN = """
import json, os, pathlib

def pytest_collection_finish(session):
    found = [(item.nodeid, item.fixturenames, [mark.name for mark in item.iter_markers()]) for item in session.items]
    pathlib.Path(os.environ["FOUND"]).write_text(json.dumps(found))
"""
Collected = list[tuple[str, list[str], list[str]]]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """Name, fixtures and marks of each test in PLACES, by a run of its own."""
    folder = tmp_path_factory.mktemp("marks")
    (folder / "what_was_collected.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--long", "-p", "what_was_collected", *PLACES]
    variables = {"PYTHONPATH": str(folder), "FOUND": str(folder / "found"), "PATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Collected = json.loads((folder / "found").read_text())
    return found


def test_every_mark_is_registered_and_on_the_page_for_contributors():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    registered = {line.split(":")[0] for line in settings["markers"] if "tests/servers/marks.py" in line}
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert registered == {*MARKS}
    assert [mark for mark in MARKS if f"| `{mark}` |" not in page] == []


def test_every_mark_has_tests(collected: Collected):
    assert {mark for _, _, marks in collected for mark in marks} >= {*MARKS}


@pytest.mark.parametrize(
    "fixture", ["postgres_server", "own_postgres", "own_pgbouncer", "cosmos_server", "mssql_server"]
)
def test_whoever_asks_for_the_fixture_of_a_server_has_its_mark(collected: Collected, fixture: str):
    marks = [set(marks) for _, fixtures, marks in collected if fixture in fixtures]
    assert marks
    assert all(OF_FIXTURE[fixture] <= found for found in marks)


def test_a_test_on_every_database_has_the_mark_of_the_one_it_runs_on(collected: Collected):
    marks = {
        name.partition("[")[2]: {*marks} & {*MARKS} for name, _, marks in collected if "stores/test_backlog" in name
    }
    assert marks == {"sqlite]": set(), "postgres]": {"postgres"}, "sqlserver]": {"sqlserver"}}


TWO = """
    def test_with(postgres_url):
        pass

    def test_without(sqlite_url):
        pass
"""


@pytest.mark.parametrize(("chosen", "run"), [("postgres", "test_with"), ("not postgres", "test_without")])
def test_a_mark_selects_and_leaves_out(tmp_path: Path, chosen: str, run: str):
    answer = pytest_in(tmp_path, TWO, PYTEST_ADDOPTS=f"-m '{chosen}' --collect-only -q")
    assert [line for line in answer.stdout.splitlines() if "::" in line] == [f"test_it.py::{run}"]


UNMARKED = """
    from tests.servers.postgres import PostgresServer, binaries_of

    def test_it():
        PostgresServer.of(binaries_of()).start()
"""


def test_a_server_that_is_started_without_its_mark_fails_the_test(tmp_path: Path):
    answer = pytest_in(tmp_path, UNMARKED)
    assert answer.returncode == 1
    assert "test_it.py::test_it uses a server and does not say so: mark it @pytest.mark.postgres" in answer.stdout
