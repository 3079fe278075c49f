"""Commands and a database that is away, or that does not let them: 69 or waiting for the first, 78 for the second."""

import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.fencehold.cli.cli_process import Command, error_of, fencehold_run, hold, prepare, until
from tests.fencehold.cli.outbox_scene import added
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port
from tests.servers.roles import Role
from tests.servers.unwritable import unwritable

APP = """
import pathlib

async def handle(event):
    pathlib.Path(__file__).with_name("handled").touch()
"""
VERBS = (["ls"], ["init"], ["show", "job"], ["run", "job", "--no-wait", "--", "true"])


def says(command: Command, *words: str) -> str:
    """The first line on stderr with all these words in it."""
    while line := command.stderr_line():
        if all(word in line for word in words):
            return line
    raise AssertionError(f"it ended and never said {words}")


@pytest.fixture
def down(own_postgres: PostgresServer) -> PostgresServer:
    """Has its tables, and does not run."""
    prepare(own_postgres.dsn())
    own_postgres.stop()
    return own_postgres


# An outage: what runs until it is stopped waits and says so; what has one answer to give gives 69


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_single_verb_ends_with_69_at_once(verb: list[str]) -> None:
    code, error = error_of(f"postgresql://me@127.0.0.1:{free_port()}/db", *verb)
    assert (code, error["code"]) == (69, "unreachable")


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a host that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


ALL_VERBS = [*VERBS, ["step-down", "job"], ["doctor"]]


@pytest.mark.parametrize(
    "verb", [pytest.param(one, id=one[0], marks=[] if one == ["ls"] else pytest.mark.long) for one in ALL_VERBS]
)
def test_a_single_verb_speaks_of_a_silent_host_before_it_gives_up(silent: int, verb: list[str]) -> None:
    with Command(f"postgresql://me:hunter2@127.0.0.1:{silent}/db", *verb) as command:
        said = command.stderr_line()
        assert command.child.poll() is None, "long before it gives up"
    assert said.startswith(f"fencehold: no answer from postgresql://127.0.0.1:{silent}/db yet")


@pytest.mark.long
def test_for_a_program_a_silent_host_is_one_error_object(silent: int) -> None:
    code, error = error_of(f"postgresql://me@127.0.0.1:{silent}/db", "ls")
    assert (code, error["code"]) == (69, "unreachable")


def test_run_started_into_an_outage_says_so_and_runs_when_it_is_over(down: PostgresServer, tmp_path: Path) -> None:
    with Command(down.dsn(), "run", "job", "--", "touch", str(tmp_path / "ran")) as command:
        says(command, "waiting for the database", "unreachable")
        down.start()
        assert command.end()[0] == 0
    assert (tmp_path / "ran").exists()


def test_run_that_may_wait_only_so_long_ends_with_69(down: PostgresServer) -> None:
    code, _, err = fencehold_run(down.dsn(), "run", "job", "--wait", "300ms", "--", "true")
    assert (code, "unreachable" in err) == (69, True)


def test_run_told_to_stop_while_it_waits_for_the_database_ends_at_once(down: PostgresServer) -> None:
    with Command(down.dsn(), "run", "job", "--", "true") as command:
        says(command, "waiting for the database")
        command.child.send_signal(signal.SIGTERM)
        assert command.end()[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["worker", "reaper"])
def test_a_worker_started_during_a_restart_says_so_and_works(
    down: PostgresServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    words = ["worker", "app:handle"] if name == "worker" else ["reaper"]
    with Command(down.dsn(), *words) as command:
        says(command, "store_unreachable", "unreachable")
        down.start()
        says(command, f"{name}_started")
        if name == "worker":
            added(down.dsn(), "a")
            until((tmp_path / "handled").exists, "the handling of the event")
        command.child.send_signal(signal.SIGTERM)
        assert command.end()[0] == 0


def test_run_that_does_not_wait_says_that_it_asks_once(sqlite_url: str) -> None:
    prepare(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        code, _, err = fencehold_run(sqlite_url, "run", "job", "--lease", "1s", "--no-wait", "--", "true")
    assert (code, "waiting" in err) == (69, False)
    assert "asked once (--no-wait), lease 'job': [busy]" in err


# A mistake: 78 at first contact, with what is missing


@pytest.fixture
def clerk(postgres_url: str):
    prepare(postgres_url)
    role = Role(postgres_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    role.may_use_all_tables()
    yield role
    role.drop()


def test_run_as_a_role_without_insert_is_78_and_names_the_table(clerk: Role) -> None:
    clerk.owner_says("REVOKE INSERT ON fencehold_leases FROM {}")
    code, error = error_of(clerk.url, "run", "job", "--", "true")
    assert (code, error["code"]) == (78, "no_permission")
    assert "fencehold_leases" in error["message"]


def test_a_held_lease_does_not_hide_that_a_right_is_missing(clerk: Role, postgres_url: str) -> None:
    hold(postgres_url, "job")
    clerk.owner_says("REVOKE UPDATE ON fencehold_leases FROM {}")
    assert error_of(clerk.url, "run", "job", "--", "true")[0] == 78


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_database_that_does_not_exist_is_78(postgres_url: str, verb: list[str]) -> None:
    code, error = error_of(f"{postgres_url}_not", *verb)
    assert (code, error["code"]) == (78, "no_such_database")


@pytest.mark.parametrize(
    "verb", [["init"], ["run", "job", "--", "true"], ["worker", "app:handle"], ["reaper"]], ids=lambda verb: verb[0]
)
def test_a_sqlite_file_that_cannot_be_written_is_78(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    if verb != ["init"]:
        prepare(f"sqlite:///{folder}/app.db")
        sqlite3.connect(folder / "app.db").close()
    with unwritable(folder):
        code, _, err = fencehold_run(f"sqlite:///{folder}/app.db", *verb)
    assert code == 78
    assert str(folder) in err


def test_worker_without_tables_is_78(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    code, _, err = fencehold_run(postgres_url, "worker", "app:handle")
    assert (code, "fencehold init" in err) == (78, True)
