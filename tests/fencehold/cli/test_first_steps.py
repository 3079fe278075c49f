"""The first hour of a new user: what is mistyped or not there yet is told with what to type."""

import sys
from pathlib import Path

import pytest

from tests.fencehold.cli.cli_process import fencehold_run

NO_ONE = "0198c5d2-7c1e-7cc3-9d5e-3f2b8a1c4e77"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command is given in, with handlers in app.py."""
    (tmp_path / "app.py").write_text("async def send(event):\n    pass\n\nhandlers = {'a': send}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    return tmp_path.resolve()


@pytest.mark.parametrize("outbox", ["outbox", "orders"])
@pytest.mark.parametrize("command", ["worker app:handlers", "reaper", "outbox ls", f"outbox show {NO_ONE}"])
def test_in_a_new_folder_an_outbox_names_the_init_that_makes_it(folder: Path, cli, command: str, outbox: str):
    refused = cli("sqlite:///app.db", *command.split(), "--outbox", outbox)
    assert refused.code == 78
    assert f"`fencehold init --outbox {outbox}`" in refused.err
    assert "`fencehold init`" not in refused.err


def test_a_worker_that_is_refused_at_its_start_does_not_say_that_it_stopped(folder: Path):
    code, _, err = fencehold_run("sqlite:///app.db", "worker", "app:handlers")
    assert (code, "schema_missing" in err) == (78, True)
    assert "worker_stopped" not in err


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("step-down n --wait", "step-down"), ("items ls --kind", "items ls"), ("outbox ls --limit", "outbox ls"),
        ("ls --dsn", "ls"), ("--dsn", ""), ("step-down", "step-down"),
    ],
)  # fmt: skip
def test_an_option_without_its_value_names_the_help_of_its_command(cli, words: str, command: str):
    refused = cli(None, *words.split())
    assert refused.code == 78
    assert refused.error["hint"] == f"See `{f'fencehold {command}'.strip()} --help`."


@pytest.mark.parametrize("words", ["verify --for 1s", "verify --for 2h", "demo --seconds 1"])
def test_a_time_that_is_too_short_or_too_long_is_told_with_one_that_is_not(cli, words: str):
    option = words.split()[1]
    refused = cli("sqlite:///app.db", *words.split())
    assert (refused.code, refused.error["code"]) == (78, "bad_duration")
    assert f"{option} " in refused.error["hint"]
