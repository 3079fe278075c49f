"""`fencehold verify`: short runs that pass, what they leave behind, and how they end before their time."""

import json
import re
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.fencehold.verify.scene import folder, started, tables, until_a_fault, verify
from tests.servers.postgres import AnyPostgres
from tests.tidy.tree import ROOT

SHORT = ("--for", "3s", "--contenders", "3")
pytestmark = pytest.mark.limit(200)


def test_a_sqlite_file_that_is_not_there_passes_and_nothing_is_left(tmp_path: Path) -> None:
    ran = verify(f"sqlite:///{tmp_path}/app.db", *SHORT, "-o", "json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["verdict"] == "passed"
    assert ran.invariant("no-stale-fenced-write")["checked"] > 0
    assert "one-advisory-lock-holder" not in [one["name"] for one in ran.json["invariants"]]
    assert set(ran.json["not_tested"]) >= {"cut", "clock", "advisory locks"}
    assert folder(tmp_path) == {}


def test_the_page_of_commands_shows_the_fields_that_are_printed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    [shown] = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if '"verdict"' in block]
    ran = verify(f"sqlite:///{tmp_path}/app.db", "--for", "3s", "--contenders", "2", "--pause-hook", ":", "-o", "json")
    assert shown.keys() == ran.json.keys()
    for field in ("invariants", "hooks"):
        assert shown[field][0].keys() == ran.json[field][0].keys()


def test_postgresql_passes_and_only_the_report_is_left(postgres_url: str, tmp_path: Path) -> None:
    before = tables(postgres_url)
    page = tmp_path / "report.html"
    ran = verify("--dsn", postgres_url, *SHORT, "--report", str(page), "--pause-hook", "echo one", "-o", "json")
    assert ran.code == 0, ran.out + ran.err
    assert all(one["checked"] for one in ran.json["invariants"])
    assert [(one["exit_code"], one["output"]) for one in ran.json["hooks"]] == [(0, "one\n")]
    assert "failover" in ran.json["not_tested"]
    assert tables(postgres_url) == before
    assert "<svg" in page.read_text(encoding="utf-8")


def test_the_users_own_sqlite_file_is_not_touched(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # a reader would leave its two files beside it
        connection.executescript("CREATE TABLE mine (x); INSERT INTO mine VALUES (1);")
    before = folder(tmp_path)
    with started(f"sqlite:///{tmp_path}/app.db", "--for", "60s") as child:
        until_a_fault(child)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM
    assert folder(tmp_path) == before


def test_ctrl_c_leaves_no_schema_and_no_process(postgres_url: str) -> None:
    before = tables(postgres_url)
    with started(postgres_url, "--for", "60s") as child:
        until_a_fault(child)
        contenders = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    assert child.returncode == 130
    assert contenders
    assert psutil.wait_procs(contenders, timeout=30)[1] == []
    assert tables(postgres_url) == before


def test_a_run_that_is_killed_leaves_no_contender_not_even_a_frozen_one(tmp_path: Path) -> None:
    with started(f"sqlite:///{tmp_path}/app.db", "--for", "60s") as child:
        until_a_fault(child)
        contenders = psutil.Process(child.pid).children(recursive=True)
        for one in contenders:
            with suppress(psutil.NoSuchProcess):  # killed by a fault just now
                if one.num_threads() > 1:  # one that has only just begun could not yet ask to die with its parent
                    one.suspend()
        child.kill()
        child.communicate(timeout=60)
    _, alive = psutil.wait_procs(contenders, timeout=30)
    assert alive == []


# What is refused


def test_a_user_who_may_not_make_a_schema_is_told_so(postgres_server: AnyPostgres, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS verify_guest")
        admin.execute("CREATE ROLE verify_guest LOGIN")
    guest = postgres_url.replace("postgres@", "verify_guest@")
    ran = verify(guest, *SHORT, "-o", "json")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("DROP ROLE verify_guest")
    assert (ran.code, ran.error["code"]) == (78, "no_permission")
    assert "GRANT CREATE ON DATABASE" in ran.error["hint"]


@pytest.mark.parametrize("limited", ["role", "database"])
def test_too_few_connections_for_this_user_are_named_before_anything_is_made(postgres_url: str, limited: str) -> None:
    database = postgres_url.partition("?")[0].rpartition("/")[2]
    role = f"few_{database}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE ROLE "{role}" LOGIN CONNECTION LIMIT {20 if limited == "role" else -1}'.encode())
        admin.execute(f'GRANT CREATE ON DATABASE "{database}" TO "{role}"'.encode())
        admin.execute(f'ALTER DATABASE "{database}" CONNECTION LIMIT {20 if limited == "database" else -1}'.encode())
        try:
            ran = verify(postgres_url.replace("postgres@", f"{role}@"), *SHORT, "-o", "json")
        finally:
            admin.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'.encode())
    assert (ran.code, ran.error["code"]) == (78, "too_few_connections"), ran.out + ran.err
    assert f"CONNECTION LIMIT of the {limited}" in ran.error["message"]
    assert "takes 20 connections" in ran.error["message"]


def test_a_server_is_not_reached_through_its_unix_socket(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as admin:
        [(folders,), (port,)] = [
            admin.execute(f"SHOW {name}").fetchone() or () for name in ("unix_socket_directories", "port")
        ]
    place = folders.partition(",")[0]
    if not Path(place, f".s.PGSQL.{port}").exists():
        pytest.skip("the server has no socket on this machine")
    before = tables(postgres_url)
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    ran = verify(f"postgresql:///{name}?user=postgres&host={place}&port={port}", *SHORT, "-o", "json")
    assert (ran.code, ran.error["code"]) == (78, "verify_unsupported"), ran.out + ran.err
    assert "TCP address" in ran.error["hint"]
    assert tables(postgres_url) == before


def test_a_database_that_is_away_is_69() -> None:
    ran = verify("postgresql://nobody@127.0.0.1:1/none", *SHORT, "-o", "json")
    assert (ran.code, ran.error["code"]) == (69, "unreachable")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sqlite:///a.db", "--faults", "kill,pasue"], "unknown_fault", "'pasue'. Did you mean 'pause'?"),
        (["sqlite:///a.db", "--faults", ","], "unknown_fault", "names no fault"),
        (["sqlite:///a.db", "--for", "1s"], "bad_duration", "from 3 s to 60 min"),
        (["sqlite:///a.db", "--contenders", "1"], "bad_count", "from 2 to 16"),
        (["mssql://u@h/db"], "verify_unsupported", "SQLite and PostgreSQL"),
        (["sqlite:///a.db", "--report", "/nowhere/a.html"], "bad_report", "no folder /nowhere"),
        (["sqlite:////nowhere/a.db"], "bad_url", "There is no folder"),
    ],
)
def test_a_mistake_is_told_before_anything_is_made(arguments: list[str], code: str, words: str) -> None:
    ran = verify(*arguments, "-o", "json")
    assert (ran.code, ran.error["code"]) == (78, code), ran.err
    assert words in ran.error["message"]


def test_an_unknown_fault_lists_the_known_ones() -> None:
    ran = verify("sqlite:///a.db", "--faults", "flood", "-o", "json")
    assert ran.error["hint"] == "Known: kill, pause, cut, restart-client, slow, clock; or none."


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app.db").write_text("once upon a time " * 100)
    ran = verify(f"sqlite:///{tmp_path}/app.db", "-o", "json")
    assert (ran.code, ran.error["code"]) == (78, "not_a_database")
    assert list(folder(tmp_path)) == ["app.db"]


def test_a_report_for_which_there_is_no_room_loses_no_result(tmp_path: Path) -> None:
    ran = verify(f"sqlite:///{tmp_path}/app.db", *SHORT, "--report", "/dev/full")
    assert (ran.code, "report_failed" in ran.err) == (74, True)
    assert "no-stale-fenced-write" in ran.out


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = verify(f"sqlite:///{tmp_path}/none/app.db", *SHORT, "-o", "json")
    assert (ran.code, ran.error["code"]) == (78, "bad_url")
    assert f"no folder {tmp_path}/none" in ran.error["message"]
