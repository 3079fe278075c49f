"""The frame of a command of somebody else's: its errors, its exit codes, and no password in what it prints."""

import click
import pytest

from fencehold import ConfigurationError, Unavailable
from fencehold.cli.app import execute as fencehold
from fencehold.command import BAD_CONFIGURATION, NO, OK, execute, keep_secret, lease_script

SECRET = "pr1vate-w0rd"


@click.group()
def jobs() -> None:
    """Jobs."""


@jobs.command()
def done() -> None:
    """Returns nothing."""


@jobs.command()
def nothing() -> int:
    return NO


@jobs.command()
@click.argument("kind")
def fails(kind: str) -> None:
    keep_secret(f"postgresql://u:{SECRET}@h/d")
    errors = {
        "mistake": ConfigurationError(f"no {SECRET}", hint="`fencehold init`", code="schema_missing"),
        "outage": Unavailable("gone", code="unreachable"),
        "fault": RuntimeError("ours"),
    }
    raise errors[kind]


def own(code: str, hint: str) -> str:
    return "jobs init" if code == "schema_missing" else hint


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["done"], OK), (["nothing"], NO), (["fails", "mistake"], BAD_CONFIGURATION), (["fails", "outage"], 69),
        (["fails", "fault"], 70), (["no-such-command"], BAD_CONFIGURATION), ([], BAD_CONFIGURATION),
    ],
)  # fmt: skip
def test_each_end_has_its_exit_code(arguments, code):
    assert execute(jobs, arguments, "jobs", own) == code


def test_an_error_is_one_message_in_the_programs_own_words_and_without_a_password(capsys):
    execute(jobs, ["fails", "mistake"], "jobs", own)
    assert capsys.readouterr().err == "jobs: [schema_missing] no ***\n  hint: jobs init\n"


def test_a_fault_is_no_traceback(capsys):
    execute(jobs, ["fails", "fault"], "jobs")
    said = capsys.readouterr().err
    assert said.startswith("jobs: [internal_error] RuntimeError: ours\n")
    assert "Traceback" not in said


@pytest.mark.parametrize("url", ["sqlite:///any.db", "postgresql://any/any", "mssql://any/any"])
def test_the_script_of_a_lease_table_is_what_fencehold_prints(url, capsys):
    script = lease_script(url, "my_leases")
    dialect = url.partition(":")[0].replace("postgresql", "postgres")
    assert fencehold(["--table", "my_leases", "sql", "init", "--dialect", dialect]) == OK
    assert script.strip() in capsys.readouterr().out
    assert ("GRANT" in script) == (dialect != "sqlite")
