"""docs/commands.md shows the fields that the commands really print, and every command and option there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fencehold.cli import exit_codes
from fencehold.cli.app import cli
from tests.system.cli_process import error_of, hold, parsed, prepare

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def example(key: str) -> Any:
    return next(block for block in EXAMPLES if key in block)


def test_the_examples_have_the_fields_that_are_printed(sqlite_url):
    prepare(sqlite_url)
    hold(sqlite_url, "job", 0.1)
    assert example("error")["error"].keys() == error_of(None, "ls")[1].keys()
    assert example("applied").keys() == parsed(sqlite_url, "init").keys()
    assert example("sql").keys() == parsed(sqlite_url, "sql", "init").keys()
    assert example("leases")["leases"][0].keys() == parsed(sqlite_url, "ls")["leases"][0].keys()
    assert example("lease")["lease"].keys() == parsed(sqlite_url, "show", "job")["lease"].keys()
    assert example("asked").keys() == parsed(sqlite_url, "step-down", "job").keys()
    assert example("story").keys() == parsed(None, "demo", "--seconds", "5").keys()


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_and_option_is_on_the_page(name):
    command = cli.commands[name]
    assert f"## `fencehold {name}" in PAGE
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options if option not in PAGE.replace("-o table", "--output")} == set()


def test_every_exit_code_is_on_the_page():
    table = PAGE[PAGE.index("| exit code") : PAGE.index("In JSON")]
    for name, value in vars(exit_codes).items():
        if name.isupper():
            assert re.search(rf"\b{value}\b", table), name
