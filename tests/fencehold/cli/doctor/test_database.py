"""`fencehold doctor` and a database that is not as it should be: it does not say ok, and its advice helps."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

from tests.conftest import not_run
from tests.fencehold.cli.cli_process import hold, prepare, until
from tests.fencehold.cli.doctor.test_doctor import finding, states
from tests.fencehold.cli.outbox_scene import reaped
from tests.servers.postgres import AnyPostgres, PostgresServer, fresh_database
from tests.servers.programs import Missing
from tests.servers.roles import Role
from tests.servers.small_disk import SmallDisk, small_disk
from tests.servers.unwritable import no_files_beside, only_readable, unwritable


def unwell(answer: Any, check: str, state: str = "error") -> Any:
    assert (answer.code, answer.json["healthy"]) == (1, False)
    found = finding(answer, check)
    assert found["state"] == state
    return found


def said_by(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def ready_url(postgres_url: str) -> str:
    prepare(postgres_url)
    reaped(postgres_url)
    return postgres_url


@pytest.fixture
def clerk(ready_url: str) -> Iterator[Role]:
    role = Role(ready_url, f"clerk_{psycopg.conninfo.conninfo_to_dict(ready_url)['dbname']}")
    role.may_use_all_tables()
    role.owner_says("GRANT DELETE ON fencehold_items TO {}")
    yield role
    role.drop()


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk") as disk:
            yield disk
    except Missing as missing:
        not_run(request.config, missing)


# Writing


def test_a_role_with_all_the_rights_it_needs_is_well(clerk, cli):
    answer = cli(clerk.url, "doctor")
    assert (answer.code, set(states(answer).values()) - {"skipped"}) == (0, {"ok"})


@pytest.mark.parametrize("right", ["INSERT", "UPDATE"])
def test_a_role_that_may_read_and_not_write_is_an_error(clerk, cli, right):
    clerk.owner_says(f"REVOKE {right} ON fencehold_leases FROM {{}}")
    answer = cli(clerk.url, "doctor")
    assert "fencehold_leases" in unwell(answer, "writing")["detail"]
    assert f"{right} on fencehold_leases" in unwell(answer, "rights")["detail"]


def test_a_command_that_lacks_a_right_names_it(clerk, cli):
    clerk.owner_says("REVOKE SELECT ON fencehold_leases FROM {}")
    clerk.owner_says("REVOKE SELECT ON outbox FROM {}")
    refused = cli(clerk.url, "ls")
    assert (refused.code, refused.error["code"]) == (78, "no_permission")
    assert "this user lacks SELECT on fencehold_leases" in refused.error["message"]
    assert "this user lacks SELECT on outbox" in cli(clerk.url, "outbox", "ls").error["message"]


def test_row_level_security_is_named_and_no_grant_is_advised(clerk, cli):
    clerk.owner_says("ALTER TABLE fencehold_leases ENABLE ROW LEVEL SECURITY")
    hint = unwell(cli(clerk.url, "doctor"), "writing")["hint"]
    assert "CREATE POLICY" in hint
    assert "sql init" not in hint
    clerk.owner_says("CREATE POLICY all_rows ON fencehold_leases TO {} USING (true) WITH CHECK (true)")
    assert finding(cli(clerk.url, "doctor"), "writing")["state"] == "ok", "what is advised helps"


@pytest.mark.parametrize(
    ("right", "state"),
    [
        ("UPDATE ON outbox", "error"),
        ("SELECT ON outbox_reaper", "error"),
        ("INSERT ON outbox", "warning"),
        ("INSERT ON outbox_consumed", "warning"),
    ],
)
def test_a_right_that_is_missing_on_an_outbox_is_named(clerk, cli, right, state):
    clerk.owner_says(f"REVOKE {right} FROM {{}}")
    found = unwell(cli(clerk.url, "doctor"), "rights", state)
    assert (found["outbox"], right.replace("ON", "on") in found["detail"]) == ("outbox", True)
    assert "fencehold sql init" in found["hint"]


def test_a_right_that_is_missing_on_items_is_named(clerk, cli):
    clerk.owner_says("REVOKE USAGE ON SEQUENCE fencehold_items_token FROM {}")
    assert "fencehold_items_token" in unwell(cli(clerk.url, "doctor"), "rights", "warning")["detail"]


def test_a_table_that_somebody_has_locked_is_an_error(ready_url, cli):
    with psycopg.connect(ready_url) as holder:
        holder.execute("LOCK TABLE fencehold_leases IN SHARE MODE")
        assert "locked" in unwell(cli(ready_url, "doctor"), "writing")["detail"]


def test_a_sqlite_file_that_somebody_has_locked_is_an_error(sqlite_url, cli, monkeypatch):
    prepare(sqlite_url)
    reaped(sqlite_url)
    monkeypatch.setattr("fencehold.runtime.checkup.LIMIT_S", 0.3)
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert "locked" in unwell(cli(sqlite_url, "doctor"), "writing")["detail"]
    holder.close()
    assert cli(sqlite_url, "doctor").code == 0


def test_a_sqlite_file_that_cannot_be_written_is_an_error(tmp_path, cli):
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"sqlite:///{folder}/app.db"
    prepare(url)
    reaped(url)
    with unwritable(folder):
        found = unwell(cli(url, "doctor"), "database")
    assert "cannot be opened" in found["detail"]
    assert "fencehold init" not in found["hint"]


def test_a_sqlite_file_that_can_be_read_and_not_written_is_an_error(tmp_path, cli):
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"sqlite:///{folder}/app.db"
    prepare(url)
    reaped(url)
    with sqlite3.connect(folder / "app.db") as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # in WAL not even a reader gets in
    connection.close()
    with unwritable(folder):
        assert "read-only" in unwell(cli(url, "doctor"), "writing")["detail"]


@pytest.mark.parametrize("command", ["ls", "doctor", "init"])
def test_who_may_only_read_a_sqlite_file_leaves_nothing_that_locks_its_owner_out(cli, command):
    with TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        file = Path(name) / "app.db"
        url = f"sqlite:///{file}"
        prepare(url)
        assert cli(url, command).code in (0, 1), "whatever it imports is imported"
        with only_readable(file):
            refused = cli(url, command)
        assert [path.name for path in Path(name).iterdir()] == ["app.db"]
        said = unwell(refused, "database")["hint"] if command == "doctor" else refused.error["code"]
        assert said == "read_only" or "permission to read and write" in said


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
@pytest.mark.parametrize("command", ["init --outbox other", "step-down job"])
def test_where_the_folder_of_a_sqlite_file_cannot_be_written_it_is_the_folder_that_is_named(cli, command, journal):
    with TemporaryDirectory() as name:
        file = Path(name) / "app.db"
        prepare(f"sqlite:///{file}")
        hold(f"sqlite:///{file}", "job", 30)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal}")
        with no_files_beside(file):
            error = cli(f"sqlite:///{file}", *command.split()).error
        assert error["code"] == "read_only"
        assert error["message"] == f"{file} can be written by this process, but its folder {name} cannot."


def test_who_may_only_read_a_sqlite_file_that_is_in_use_may_look_at_it(cli):
    with TemporaryDirectory() as name:
        file = Path(name) / "app.db"
        url = f"sqlite:///{file}"
        prepare(url)
        with closing(sqlite3.connect(file)) as program:
            program.execute("SELECT * FROM fencehold_leases")
            for beside in Path(name).iterdir():
                beside.chmod(0o644)
            assert cli(url, "ls").code == 0
            with only_readable(file):
                assert cli(url, "ls").code == 0


def test_a_full_disk_is_an_error_while_a_program_has_the_file_open(disk, cli):
    """What is rolled back never comes to the disk: the write that is tried succeeds."""
    url = f"sqlite:///{disk.folder}/app.db"
    prepare(url)
    reaped(url)
    assert states(cli(url, "doctor"))["disk"] == "ok"
    with closing(sqlite3.connect(disk.folder / "app.db")) as program:
        program.execute("SELECT * FROM fencehold_leases")
        disk.fill()
        found = unwell(cli(url, "doctor"), "disk")
    assert "disk_full: 0 kB are left" in found["detail"]
    assert "Make room" in found["hint"]


def test_a_full_disk_is_named_as_such_when_no_program_has_the_file_open(disk, cli):
    url = f"sqlite:///{disk.folder}/app.db"
    prepare(url)
    disk.fill()
    assert "the disk is full" in unwell(cli(url, "doctor"), "database")["detail"]
    refused = cli(url, "ls")
    assert (refused.code, refused.error["code"]) == (69, "disk_full")


def test_it_writes_nothing_and_leaves_no_file_behind(tmp_path: Path, cli):
    url = f"sqlite:///{tmp_path}/app.db"
    assert cli(url, "doctor").code == 1
    assert list(tmp_path.iterdir()) == []
    prepare(url)
    reaped(url)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert cli(url, "doctor").code == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_on_postgresql_it_leaves_no_lease_behind(ready_url, cli):
    assert cli(ready_url, "doctor").code == 0
    with psycopg.connect(ready_url) as connection:
        names = connection.execute("SELECT lease_name FROM fencehold_leases").fetchall()
    assert [name for (name,) in names if "doctor" in name] == []


# Tables: the advice is one that helps


def test_without_tables_it_advises_init_and_init_helps(postgres_url, cli):
    found = unwell(cli(postgres_url, "doctor"), "lease table")
    assert "`fencehold init`" in found["hint"]
    assert cli(postgres_url, "init").code == 0
    assert finding(cli(postgres_url, "doctor"), "lease table")["state"] == "ok"


def test_of_a_table_that_was_dropped_it_says_what_init_would_say(ready_url, cli):
    said_by(ready_url, "DROP TABLE fencehold_leases")
    found = unwell(cli(ready_url, "doctor"), "lease table")
    refused = cli(ready_url, "init")
    assert refused.code == 78
    assert found["hint"] == refused.error["hint"]
    assert "backup" in found["hint"]


@pytest.mark.parametrize(
    ("table", "column", "check"),
    [("fencehold_leases", "step_down_epoch", "lease table"), ("outbox", "root_cause", "tables"),
     ("fencehold_items", "document", "items")],
)  # fmt: skip
def test_a_column_that_was_dropped_is_named_and_init_is_not_advised(ready_url, cli, table, column, check):
    said_by(ready_url, f"ALTER TABLE {table} DROP COLUMN {column}")
    found = unwell(cli(ready_url, "doctor"), check)
    assert f"{table}.{column}" in found["detail"]
    assert "backup" in found["hint"]
    assert cli(ready_url, "init").code == 78


def test_a_lease_table_without_its_safeguards_is_an_error(ready_url, cli):
    said_by(ready_url, "ALTER TABLE fencehold_leases DISABLE TRIGGER ALL")
    found = unwell(cli(ready_url, "doctor"), "lease table")
    assert "trigger fencehold_leases_row_stays (disabled)" in found["detail"]
    refused = cli(ready_url, "init")
    assert (refused.code, refused.error["code"]) == (78, "safeguard_lost")


# Settings


def test_a_database_in_sql_ascii_is_a_warning(postgres_server: AnyPostgres, cli):
    with fresh_database(postgres_server, "SQL_ASCII") as url:
        prepare(url)
        reaped(url)
        assert "client_encoding=utf8" in unwell(cli(url, "doctor"), "encoding", "warning")["hint"]


def test_limits_of_a_role_that_are_shorter_than_ours_are_named(clerk, cli):
    clerk.owner_says("ALTER ROLE {} SET statement_timeout = {}", "300ms")
    clerk.owner_says("ALTER ROLE {} SET idle_session_timeout = {}", "1s")
    clerk.owner_says("ALTER ROLE {} SET lock_timeout = {}", "1min")
    found = unwell(cli(clerk.url, "doctor"), "limits of this role", "warning")
    assert "statement_timeout = 300 ms" in found["detail"]
    assert "idle_session_timeout = 1000 ms" in found["detail"]
    assert "lock_timeout" not in found["detail"]


def test_of_several_hosts_the_one_that_answers_is_named(ready_url, cli):
    info = psycopg.conninfo.conninfo_to_dict(ready_url)
    answer = cli(f"postgresql://{info['user']}@127.0.0.1:1,127.0.0.1:{info['port']}/{info['dbname']}", "doctor")
    assert finding(answer, "server")["detail"].startswith(f"127.0.0.1:{info['port']} answers")
    assert f"postgresql://127.0.0.1:1,127.0.0.1:{info['port']}/" in finding(answer, "database")["detail"]


def test_sessions_are_ended_in_order(own_postgres: PostgresServer, cli):
    url = own_postgres.dsn()
    prepare(url)
    own_postgres.log.write_text("")
    for command in ("doctor", "init", "ls"):
        assert cli(url, command).code in (0, 1)
    with psycopg.connect(url, autocommit=True) as watcher:
        others = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'fencehold'"
        until(lambda: watcher.execute(others).fetchone() is None, "the end of all sessions")
    assert "unexpected EOF" not in own_postgres.log.read_text()


@pytest.mark.parametrize(("mode", "state"), [("DELETE", "warning"), ("WAL", "ok")])
def test_how_a_sqlite_file_keeps_its_journal_is_a_finding(sqlite_url, cli, mode, state):
    prepare(sqlite_url)
    reaped(sqlite_url)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.close()
    assert states(cli(sqlite_url, "doctor"))["journal"] == state
