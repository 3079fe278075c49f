"""`fencehold init, sql init, ls, show, step-down`: what they answer, in words, in JSON and in exit codes."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import fencehold
from tests.fencehold.cli.cli_process import (
    Command,
    error_of,
    fencehold_run,
    give_back,
    hold,
    lease_for,
    parsed,
    prepare,
    row,
    until,
)

ROOT = Path(__file__).parents[3]
LEASE_KEYS = {
    "name", "holder_id", "epoch", "state", "remaining_s", "acquired_at", "renewed_at", "expires_at",
    "step_down_requested",
}  # fmt: skip
COMMANDS = (["init"], ["sql", "init"], ["ls"], ["show", "job"], ["step-down", "job"], ["run", "job", "--", "true"])


@pytest.fixture
def url(sqlite_url: str) -> str:
    prepare(sqlite_url)
    return sqlite_url


# init and sql init


def test_init_says_what_it_applied_and_that_nothing_is_left_to_do(any_url):
    first, second = parsed(any_url, "init"), parsed(any_url, "init")
    assert first["applied"]
    assert first["table"] == "fencehold_leases"
    assert (second["applied"], second["up_to_date"]) == ([], True)
    where = f" in {second['file']}" if second["file"] else ""
    assert fencehold_run(any_url, "init")[:2] == (0, f"fencehold_leases{where}: already up to date\n")


def test_the_table_may_have_another_name_before_or_after_the_command(any_url):
    assert parsed(any_url, "--table", "submission_manager_leases", "init")["applied"]
    assert parsed(any_url, "init", "--table", "submission_manager_leases")["applied"] == []
    assert parsed(any_url, "ls", "--table", "submission_manager_leases") == {"leases": []}


def test_the_printed_sql_makes_sqlite_tables_that_init_accepts(sqlite_url):
    code, script, _ = fencehold_run(None, "sql", "init", "--dialect", "sqlite", "--items")
    assert code == 0
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.executescript(script)
    assert parsed(sqlite_url, "init", "--items")["up_to_date"] is True


def test_the_printed_sql_makes_postgresql_tables_that_init_accepts(postgres_url):
    printed = parsed(None, "sql", "init", "--dialect", "postgres", "--items")
    assert 'GRANT SELECT, INSERT, UPDATE ON "fencehold_leases" TO app' in printed["sql"]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(printed["sql"].encode())
    assert parsed(postgres_url, "init", "--items")["up_to_date"] is True


def test_the_dialect_is_that_of_the_url_and_nothing_is_connected_to():
    assert parsed("postgresql://nobody@127.0.0.1:1/none", "sql", "init")["dialect"] == "postgresql"
    assert parsed("mssql://nobody@127.0.0.1:1/none", "sql", "init")["dialect"] == "mssql"
    assert error_of(None, "sql", "init")[1]["code"] == "no_dialect"


# ls and show


def test_leases_are_listed_by_prefix_with_state_and_times(any_url):
    prepare(any_url)
    hold(any_url, "reports/a", 60)
    hold(any_url, "reports/b", 0.1)
    hold(any_url, "other", 60)
    until(lambda: row(any_url, "reports/b").remaining_s <= 0, "the lapse")  # type: ignore[union-attr]
    leases = parsed(any_url, "ls", "reports/")["leases"]
    assert [(lease["name"], lease["state"]) for lease in leases] == [("reports/a", "live"), ("reports/b", "expired")]
    assert all(set(lease) == LEASE_KEYS for lease in leases)
    lines = fencehold_run(any_url, "ls")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "other", "reports/a", "reports/b"]


def test_a_lease_that_was_given_back_is_told_from_one_whose_holder_died(any_url):
    prepare(any_url)
    give_back(any_url, hold(any_url, "done", 60))
    hold(any_url, "dead", 0.1)
    assert fencehold_run(any_url, "run", "worked", "--", "true")[0] == 0
    until(lambda: row(any_url, "dead").remaining_s <= 0, "the end of the lease")  # type: ignore[union-attr]
    states = {lease["name"]: lease["state"] for lease in parsed(any_url, "ls")["leases"]}
    assert states == {"done": "released", "dead": "expired", "worked": "released"}
    assert parsed(any_url, "show", "done")["lease"]["state"] == "released"


def test_one_lease_is_shown_in_full(any_url):
    prepare(any_url)
    held = hold(any_url, "job")
    shown = parsed(any_url, "show", "job")["lease"]
    assert (shown["holder_id"], shown["epoch"], shown["state"]) == ("somebody else", 1, "live")
    assert shown["expires_at"] == held.expires_at.isoformat()
    assert "holder              somebody else" in fencehold_run(any_url, "show", "job")[1]


@pytest.mark.parametrize("command", ["show", "step-down"])
def test_a_name_nobody_ever_held_is_1(url, command):
    code, error = error_of(url, command, "job")
    assert (code, error["code"]) == (1, "no_such_lease")


def test_a_terminal_gets_a_table_and_no_escape_sequences_from_the_data(url):
    hold(url, "job")
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("UPDATE fencehold_leases SET holder_id = ?", ["evil \x1b[31m[bold]x[/bold]"])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "FENCEHOLD_DSN": url, "COLUMNS": "160", "TERM": "xterm"}
    subprocess.run(
        [sys.executable, "-m", "fencehold.cli", "ls"], stdout=theirs, env=environment, timeout=30, check=True
    )
    seen = os.read(ours, 65536).decode()
    for end in (ours, theirs):
        os.close(end)
    assert "┃" in seen
    assert "evil \\x1b[31m[bold]x[/bold]" in seen


# step-down


@contextlib.contextmanager
def leading(url: str, *options: str) -> Iterator[Command]:
    with Command(url, "run", "job", "--lease", lease_for(url, "2s"), *options, "--", "sleep", "300") as command:
        until(lambda: (lease := row(url, "job")) is not None and lease.is_live, "the election")
        yield command


def test_a_holder_steps_down_and_the_successor_is_named(any_url):
    prepare(any_url)
    second_options = ("--lease", lease_for(any_url, "1s", "3s"), "--holder-id", "second")
    with (
        leading(any_url, "--holder-id", "first") as first,
        Command(any_url, "run", "job", *second_options, "--", "sleep", "300") as second,
    ):
        assert "waiting" in second.stderr_line()
        answer = parsed(any_url, "step-down", "job")
        assert (answer["asked"]["holder_id"], answer["asked"]["epoch"]) == ("first", 1)
        assert (answer["successor"]["holder_id"], answer["successor"]["epoch"]) == ("second", 2)
        assert first.end()[0] == 79


def test_a_holder_that_does_not_answer_is_75_and_a_lease_that_ends_meanwhile_is_seen(url):
    lease = hold(url, "job", 60)
    code, error = error_of(url, "step-down", "job", "--wait", "300ms")
    assert (code, error["code"]) == (75, "still_held")
    with Command(url, "step-down", "job") as command:
        assert "asked somebody else (epoch 1)" in command.stderr_line()
        give_back(url, lease)
        code, out, _ = command.end()
    assert code == 0
    assert "nobody has taken over yet" in out
    assert parsed(url, "step-down", "job")["asked"] is None


def test_ctrl_c_is_130(url):
    hold(url, "job", 60)
    with Command(url, "step-down", "job") as command:
        assert "waiting" in command.stderr_line()
        command.child.send_signal(signal.SIGINT)
        code, out, err = command.end()
    assert (code, out + err.strip()) == (130, "")


# Errors, the same for all


@pytest.mark.parametrize(
    "command", [["init"], ["ls"], ["show", "job"], ["step-down", "job"], ["run", "job", "--no-wait", "--", "true"]]
)
@pytest.mark.parametrize("place", ["environment", "option"])
def test_an_unreachable_database_is_69_and_its_password_is_never_printed(command, place):
    url = "postgresql://app:s3cr%40t-w0rd@127.0.0.1:1/app?connect_timeout=2"
    for output in ("table", "json"):
        refused_without_secrets(url, place, "-o", output, *command)


def test_an_unreachable_sql_server_is_69_as_well():
    """Once: of a closed port its driver tells only when the whole time for a login is over."""
    refused_without_secrets("mssql://app:s3cr%40t-w0rd@127.0.0.1:1/app", "environment", "ls")


def refused_without_secrets(url, place, *command):
    where = ["--dsn", url] if place == "option" else []
    code, out, err = fencehold_run(url if not where else None, *where, *command)
    assert code == 69
    assert "unreachable" in err
    assert "s3cr" not in out + err
    assert "w0rd" not in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "a", "postgresql://app:s3cr-w0rd@h/d"],
        ["--dns=postgresql://app:s3cr-w0rd@h/d", "ls"],
        ["--dsn", "pgsql://app:s3cr-w0rd@h/d", "ls"],
        ["--dsn", "postgresql://app:s3cr w0rd@h:port/d", "ls"],
        ["--dsn", "sqlite://app:s3cr-w0rd@h/d", "ls"],
        ["--dsn", "mssql://app:s3cr w0rd@h:port/d", "ls"],
        ["postgresql://app:s3cr-w0rd@h/d"],
        ["-o", "postgresql://app:s3cr-w0rd@h/d", "ls"],
    ],
)
def test_a_mistyped_command_line_is_78_and_does_not_echo_a_password(arguments):
    code, out, err = fencehold_run(None, *arguments)
    assert code == 78
    assert "s3cr" not in out + err
    assert "w0rd" not in out + err
    assert "fencehold: [" in err


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (None, "no_dsn"),
        ("memory://x", "bad_url"),
        ("app.db", "bad_url"),
        ("sqlite:///no/such/folder/a.db", "bad_url"),
    ],
)
@pytest.mark.parametrize("command", [["ls"], ["show", "job"], ["step-down", "job"], ["run", "job", "--", "true"]])
def test_a_missing_or_wrong_database_is_78_with_a_hint(url, code, command):
    exit_code, error = error_of(url, *command)
    assert (exit_code, error["code"]) == (78, code)
    assert error["hint"]


def test_a_database_without_tables_is_78_and_says_how_to_make_them(any_url):
    for command in COMMANDS[2:]:
        exit_code, error = error_of(any_url, *command)
        assert (exit_code, error["code"]) == (78, "schema_missing")
        assert "fencehold init" in error["hint"]


def test_json_is_meant_also_when_the_command_line_is_wrong():
    assert error_of(None, "frobnicate")[0] == 78
    assert error_of(None)[0] == 78
    code, _, err = fencehold_run(None, "run", "job", "-ojson")
    assert (code, json.loads(err)["error"]["code"]) == (78, "bad_usage")


@pytest.mark.parametrize("command", [[], *([c[0]] for c in COMMANDS), ["sql", "init"], ["demo"]])
def test_help_teaches_with_an_example_and_exit_codes(command):
    code, out, err = fencehold_run(None, *command, "--help")
    assert (code, err) == (0, "")
    assert "Usage: fencehold" in out
    if command != ["sql"]:
        assert "Example" in out
        assert "Exit codes" in out
        assert "FENCEHOLD_DSN" in out


def test_without_its_extra_the_command_says_what_to_install():
    program = "import sys; sys.path.insert(0, sys.argv[1]); from fencehold.cli import main; main()"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(ROOT / "src")], capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 78
    assert answer.stderr.splitlines() == ["fencehold: the command is not installed; pip install 'fencehold[cli]'"]


def test_a_reader_that_leaves_early_is_no_error(url):
    async def fill() -> None:
        async with fencehold.connect(url) as store:
            for number in range(2000):
                await store.leases.acquire(f"{'x' * 50}{number:05}", "h" * 100, 60)

    asyncio.run(fill())
    with Command(url, "ls") as command:
        assert command.child.stdout is not None
        command.child.stdout.read(1)
        command.child.stdout.close()
        assert command.child.wait(30) == 0
        assert command.child.stderr is not None
        assert command.child.stderr.read() == b""


def test_a_closed_stdout_is_no_reason_to_fail(sqlite_url: str) -> None:
    env = {**os.environ, "FENCEHOLD_DSN": sqlite_url}
    command = f"{sys.executable} -m fencehold.cli"
    script = f"{command} init >&- && {command} run x -- sh -c 'exit 7' >&- 2>&-"
    assert subprocess.run(["sh", "-c", script], env=env, check=False).returncode == 7
