"""What the command says fits the screen and the mistake: widths, hints, and names in one piece."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fencehold.cli.app import cli as commands
from fencehold.model.names import lease_name
from tests.fencehold.cli.cli_process import error_of, fencehold_run, prepare
from tests.fencehold.cli.outbox_scene import Answer

TOO_LONG = "n" * 200


def helps(command: click.Command, path: str) -> list[tuple[str, str]]:
    context = click.Context(command, info_name=path, max_content_width=100)
    found = [(path, command.get_help(context))]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += helps(below, f"{path} {name}")
    return found


def test_no_help_is_wider_than_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = [(path, line) for path, text in helps(commands, "fencehold") for line in text.splitlines() if len(line) > 80]
    assert wide == []


def test_an_age_to_purge_by_needs_a_unit(sqlite_url: str, cli) -> None:
    answer: Answer = cli(sqlite_url, "outbox", "purge", "--older-than", "30")
    assert (answer.code, answer.error["code"]) == (78, "bad_duration")
    assert "30d" in answer.error["hint"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is always full")
@pytest.mark.parametrize("verb", [["ls"], ["outbox", "stats", "-o", "json"]])
def test_an_answer_that_cannot_be_written_is_an_error_with_a_code(sqlite_url: str, verb: list[str]) -> None:
    prepare(sqlite_url)
    prepared = {**os.environ, "FENCEHOLD_DSN": sqlite_url}
    subprocess.run([sys.executable, "-m", "fencehold", "run", "job", "--", "true"], env=prepared, check=True)
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fencehold", *verb]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=prepared, text=True, check=False)
    assert (done.returncode, "output_failed" in done.stderr) == (74, True)
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("url", "said", "unsaid"),
    [
        ("nonsense", "Use sqlite:///file.db", "memory://"),
        ("mysql://host/db", "names no database", "memory://"),
        ("sqlite:///:memory:", "lives inside one process", "memory://name"),
        ("sqlite:///h.db?foo=bar", "'foo=bar' is no parameter", "names no SQLite file"),
        ("postgresql://me:hunter2@host/db?foo=bar", "no parameter 'foo'", "hunter2"),
        ("postgresql://me:hunter2@host:abc/db", "port in the PostgreSQL URL is not a number", "hunter2"),
        ("postgresql://me:hun/ter2@host/db", "cannot be read", "hun"),
        ("postgresql://me@host/db?hun=@ter2", "cannot be read", "hun"),
    ],
)
def test_a_wrong_url_is_told_by_its_wrong_part(cli_text, url: str, said: str, unsaid: str) -> None:
    answer: Answer = cli_text(url, "ls")
    assert (answer.code, said in answer.err, unsaid in answer.err) == (78, True, False), answer.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "No lease was named."),
        (["run", "nightly"], "There is no command."),
        (["run", "nightly", "backup.sh"], "Put -- before the command."),
        (["run", "--no-wait", "--", "true"], "No lease was named."),
        (["run", "--lease", "10s", "--", "python", "import.py"], "No lease was named."),
        (["run", "x", "--lease", "abc", "--", "true"], "ms, s, m, h or d"),
        (["doctor", "--lease", "abc"], "ms, s, m, h or d"),
        (["outbox", "ls", "--status", "DEAD"], "'DEAD_LETTER'"),
        ([], "Usage: fencehold"),
        (["outbox", "show", "n" * 200], "n...' is no tracking id"),
    ],
)
def test_a_wrong_command_line_is_told_by_what_is_wrong(sqlite_url: str, cli_text, words: list[str], said: str) -> None:
    answer: Answer = cli_text(sqlite_url, *words)
    assert (answer.code, said in answer.err) == (78, True), answer.err


def test_a_status_may_be_given_in_small_letters(sqlite_url: str, cli) -> None:
    prepare(sqlite_url)
    assert cli(sqlite_url, "outbox", "ls", "--status", "dead_letter").json == {"events": []}


def test_a_long_name_is_cut_inside_its_quotes() -> None:
    with pytest.raises(ValueError, match=r"lease name 'n{70,}\.\.\.' has 200 characters"):
        lease_name(TOO_LONG)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("app:num", "The handler is 5, which cannot be called"),
        ("app.py:handlers", "Did you mean app:handlers?"),
        ("./app.py:handlers", "Did you mean app:handlers?"),
        ("app:handlers --no-reaper", "--no-reaper turn"),
    ],
)
def test_wrong_handlers_are_told_by_what_they_are(sqlite_url: str, cli_text, tmp_path, monkeypatch, spec, said) -> None:
    prepare(sqlite_url)
    (tmp_path / "app.py").write_text("num = 5\nhandlers = {'*': print}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "app", raising=False)
    answer: Answer = cli_text(sqlite_url, "worker", *spec.split())
    sys.modules.pop("app", None)
    assert (answer.code, said in answer.err) == (78, True), answer.err


def test_what_a_worker_died_of_is_said_once(sqlite_url: str, tmp_path: Path) -> None:
    prepare(sqlite_url)
    command = [sys.executable, "-m", "fencehold", "worker", "builtins:print", "--no-reaper"]
    environment = {**os.environ, "FENCEHOLD_DSN": sqlite_url}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("has never run")) == (78, 1), done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("echo hi", "Leave the quotes out: -- echo hi"),
        ("ls | wc", "For what only a shell understands: -- sh -c 'ls | wc'"),
    ],
)
def test_a_command_line_in_quotes_is_told_how_to_write_it(sqlite_url: str, words: str, hint: str) -> None:
    prepare(sqlite_url)
    code, error = error_of(sqlite_url, "run", "nightly", "--", words)
    assert (code, error["code"], error["hint"]) == (127, "command_not_found", hint)


def test_a_program_with_a_blank_in_its_name_still_runs(sqlite_url: str, tmp_path: Path) -> None:
    prepare(sqlite_url)
    (tmp_path / "my job").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "my job").chmod(0o755)
    assert fencehold_run(sqlite_url, "run", "nightly", "--", str(tmp_path / "my job"))[0] == 3


def test_a_worker_of_a_mistyped_outbox_says_only_which_there_are(sqlite_url: str, tmp_path: Path) -> None:
    prepare(sqlite_url)
    (tmp_path / "app.py").write_text("handlers = {'*': print}\n")
    command = [sys.executable, "-m", "fencehold", "worker", "app:handlers", "--outbox", "nope"]
    environment = {**os.environ, "FENCEHOLD_DSN": sqlite_url}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is outbox" in done.stderr) == (78, True)
    assert "worker_died" not in done.stderr


VERSION_ALONE = """
import sys
from fencehold.cli.app import execute
execute(["--version"])
print(*sys.modules)
"""


def test_the_version_is_said_without_importing_any_command() -> None:
    """Every command would start as late as the slowest of them."""
    said = subprocess.run([sys.executable, "-c", VERSION_ALONE], capture_output=True, text=True, timeout=30, check=True)
    imported = set(said.stdout.splitlines()[-1].split())
    of_commands = {
        "fencehold.cli.run.command",
        "fencehold.verify.run",
        "fencehold.cli.leases",
        "rich.console",
        "http.server",
    }
    assert "fencehold.cli.app" in imported
    assert imported & of_commands == set()
