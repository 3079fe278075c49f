"""Mistakes as people make them: each is told by what is wrong and what to do, and never by the command just given."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import fencehold
import fencehold.sync
from tests.across_packages.upgrading.test_old_tables import run
from tests.fencehold.cli.cli_process import error_of, fencehold_run, prepare
from tests.fencehold.cli.outbox_scene import Answer
from tests.servers.roles import Role


def told(answer: Answer) -> tuple[str, str]:
    """Message and hint of a mistake (78)."""
    assert answer.code == 78, answer.err
    return answer.error["message"], answer.error["hint"]


def test_init_into_a_folder_that_is_not_there_names_it_in_full(tmp_path: Path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message, hint = told(cli("sqlite:///data/app.db", "init"))
    assert message == f"{tmp_path}/data/app.db cannot be made: there is no folder {tmp_path}/data."
    assert hint == "Create the folder, or correct the path."


def test_init_where_no_file_can_be_made_does_not_advise_init(cli):
    """Also where the rights look well, as in /proc for root."""
    message, hint = told(cli("sqlite:////proc/app.db", "init"))
    assert message.startswith("/proc/app.db does not exist")
    assert "the folder /proc" in message
    assert "init" not in hint


def test_a_folder_instead_of_a_file_is_called_one(tmp_path: Path, cli):
    message, hint = told(cli(f"sqlite:///{tmp_path}", "init"))
    assert message == f"{tmp_path} is a folder, not a file."
    assert "Name a file in it" in hint


@pytest.fixture
def stranger(postgres_url: str) -> Iterator[Role]:
    role = Role(postgres_url, f"stranger_{psycopg.conninfo.conninfo_to_dict(postgres_url)['dbname']}")
    run(postgres_url, "REVOKE ALL ON SCHEMA public FROM public")
    yield role
    role.drop()


def test_without_any_right_on_the_schema_init_says_which_to_grant(stranger: Role, cli):
    message, hint = told(cli(stranger.url, "init"))
    assert message.startswith("This role may use no schema of its search_path")
    assert hint.startswith("GRANT USAGE, CREATE ON SCHEMA")
    assert "fencehold init" not in hint


@pytest.mark.parametrize("verb", [["ls"], ["outbox", "ls"], ["run", "job", "--", "true"]])
def test_without_any_right_on_the_schema_no_verb_speaks_of_missing_tables(stranger: Role, verb: list[str]):
    code, error = error_of(stranger.url, *verb)
    assert (code, error["code"]) == (78, "no_permission")
    assert error["hint"].startswith("GRANT USAGE, CREATE ON SCHEMA")


@pytest.mark.parametrize("rights", ["", "GRANT USAGE ON SCHEMA public TO {}"], ids=["no-usage", "no-create"])
def test_doctor_says_what_init_would_say_of_a_role_without_rights_on_the_schema(stranger: Role, cli, rights: str):
    if rights:
        stranger.owner_says(rights)
    message, hint = told(cli(stranger.url, "init"))
    [found] = [one for one in cli(stranger.url, "doctor").json["checks"] if one["check"] == "lease table"]
    assert (found["state"], f"{found['detail']}.", found["hint"]) == ("error", message, hint)


def test_a_missing_table_is_told_without_the_line_of_the_statement(postgres_url: str, cli):
    message, _ = told(cli(postgres_url, "ls"))
    assert message == 'A table is missing: relation "fencehold_leases" does not exist.'


def test_without_the_right_to_create_init_says_who_may(stranger: Role, cli):
    stranger.owner_says("GRANT USAGE ON SCHEMA public TO {}")
    message, hint = told(cli(stranger.url, "init"))
    assert message == "PostgreSQL refused: permission denied for schema public."
    assert "A role that owns the schema must run `fencehold init`" in hint


def test_a_schema_that_is_not_there_is_named(postgres_url: str, cli):
    answer = cli(postgres_url, "init", "--table", "ops.leases")
    message, hint = told(answer)
    assert answer.error["code"] == "no_such_schema"
    assert 'schema "ops" does not exist' in message
    assert "CREATE SCHEMA" in hint


@pytest.mark.parametrize("command", [["worker", "app:handlers"], ["reaper"], ["outbox", "ls"], ["outbox", "stats"]])
def test_a_mistyped_outbox_is_told_with_those_that_are_there(sqlite_url: str, tmp_path: Path, command: list[str]):
    async def init() -> None:
        async with fencehold.connect(sqlite_url) as store:
            store.outbox("orders"), store.outbox("billing")
            await store.init()

    asyncio.run(init())
    (tmp_path / "app.py").write_text("handlers = {'*': print}\n")
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    code, _, err = fencehold_run(sqlite_url, *command, "--outbox", "ordrs", env=env)
    assert code == 78
    assert "There is no outbox 'ordrs' in this database; there is billing, orders." in err
    assert err.count("Did you mean --outbox orders?") == 1
    assert err.count("For a new one: `fencehold init --outbox ordrs`") == 1
    assert "right folder?" not in err  # the others are in it


@pytest.mark.parametrize(
    "command",
    [
        ["run", "job", "--lease", "30sec", "--", "true"], ["run", "job", "--wait", "1m 30s", "--", "true"],
        ["step-down", "job", "--wait", "soon"], ["outbox", "purge", "--older-than", "3w"], ["doctor", "--lease", "x"],
        ["worker", "builtins:print", "--lease", "30sec"], ["worker", "builtins:print", "--retry-cap", "1min"],
        ["worker", "builtins:print", "--give-up-after", "1min"], ["reaper", "--lease", "30sec"],
        ["reaper", "--every", "10sec"], ["outbox", "stats", "--lease", "30sec"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_bad_duration_is_told_with_the_form_of_a_good_one(sqlite_url: str, cli, command: list[str]):
    prepare(sqlite_url)
    answer = cli(sqlite_url, *command)
    message, _ = told(answer)
    assert answer.error["code"] == "bad_duration"
    assert 'which is not a duration such as "30s", "5m" or 0.5' in message
    [option] = [word for word in command if word.startswith("--") and word != "--"]
    assert message.startswith(f"{option} is ")


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("postgress://u@h/d", "postgresql://user@host/db"), ("postgressql://u@h/d", "postgresql://user@host/db"),
        ("sqllite:///a.db", "sqlite:///file.db"), ("sqlsever://u@h/d", "mssql://user@host/db"),
    ],
)  # fmt: skip
def test_a_mistyped_scheme_is_told_with_the_one_that_was_meant(cli, url: str, meant: str):
    message, hint = told(cli(url, "ls"))
    assert message == f"'{url.partition('://')[0]}://' names no database that fencehold knows."
    assert hint.startswith(f"Did you mean {meant}?")
    assert "***" not in hint


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u@h/d", "names no database that fencehold knows"), ("app.db", "does not begin with the name"),
        ("postgresql:/u@h/d", "begins with 'postgresql', but no // follows"), ("://x", "nothing before its ://"),
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_told_by_what_it_lacks(cli, url: str, words: str):
    message, hint = told(cli(url, "ls"))
    assert words in message
    assert "Did you mean" not in hint


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("app.db", "sqlite:///app.db"),
        ("/srv/app.db", "sqlite:////srv/app.db"),
        ("data/my app", "sqlite:///data/my%20app"),
    ],
)
def test_a_file_without_the_name_of_a_database_is_told_with_the_address_to_type(cli, url: str, meant: str):
    message, hint = told(cli(url, "ls"))
    assert "does not begin with the name of a database" in message
    assert hint.startswith(f"For this SQLite file write {meant}. ")


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_that_are_part_of_an_address_are_told_without_what_is_in_them(cli, quote: str):
    message, hint = told(cli(f"{quote}postgresql://u:hunter2@h/d{quote}", "ls"))
    assert message == f"The database URL begins with a quote, {quote}, which is part of it."
    assert hint.startswith("Leave the quotes out")
    assert "hunter2" not in message + hint


@pytest.mark.parametrize("given", [None, "", "  "])
@pytest.mark.parametrize("connect", [fencehold.connect, fencehold.sync.connect])
def test_the_library_tells_an_address_that_is_none_or_empty_as_the_command_does(connect, given: str | None):
    with pytest.raises(fencehold.ConfigurationError, match="Is a variable not set") as caught:
        connect(given)
    assert caught.value.code == "no_dsn"
    assert caught.value.message == f"The address of the database is {'None' if given is None else 'empty'}."


def test_a_path_instead_of_an_address_is_told_with_the_form_of_one(tmp_path: Path):
    given: Any = tmp_path / "app.db"
    with pytest.raises(fencehold.ConfigurationError, match="which is no text") as caught:
        fencehold.connect(given)
    assert caught.value.hint == "For a SQLite file: f'sqlite:///{path}'."


@pytest.mark.parametrize("url", ["host=db password=hunter2", "u:hunter2@db/app", "//u:hunter2@db/app"])
def test_an_address_that_may_hold_a_password_is_not_repeated(cli, url: str):
    assert "hunter2" not in "".join(told(cli(url, "ls")))


@pytest.mark.parametrize(
    "words",
    [["--dsn", "", "ls"], ["ls", "--dsn", ""], ["ls", "--dsn", " "], ["init", "--dsn", ""], ["verify", ""],
     ["sql", "init", "--dsn", ""]],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_address_is_a_mistake_also_where_the_variable_names_a_database(sqlite_url: str, cli, words: list[str]):
    answer = cli(sqlite_url, *words)
    assert (answer.code, answer.error["code"]) == (78, "no_dsn")
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()


def test_an_empty_table_name_is_a_mistake(sqlite_url: str, cli):
    assert cli(sqlite_url, "--table", "", "init").error["code"] == "bad_name"


async def test_a_fence_on_another_sqlite_file_names_both(tmp_path: Path):
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    async with fencehold.connect(f"sqlite:///{ours}") as store:
        await store.init()
        async with store.leader("job") as leader:
            assert await leader.wait_for_leadership(20)
            assert leader.term is not None
            with sqlite3.connect(theirs, isolation_level=None) as conn:
                conn.execute("BEGIN IMMEDIATE")
                conn.execute("CREATE TABLE report (id int)")
                with pytest.raises(fencehold.ConfigurationError) as caught:
                    leader.term.fence(conn)
                conn.execute("CREATE TABLE later (id int)")  # by whoever goes on after the refusal
                assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("later",)]
            assert caught.value.code == "wrong_store"
            assert f"(it is to {theirs}, not to {ours})" in caught.value.message
            assert "The transaction was rolled back; the next write on this connection begins another" in str(
                caught.value
            )
            assert "made to fail" not in str(caught.value)
            assert leader.term.is_valid
