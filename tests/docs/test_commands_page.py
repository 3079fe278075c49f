"""docs/commands.md shows the fields that the commands really print, and every command and option there is."""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import fencehold
from fencehold.cli import exit_codes
from fencehold.cli.app import cli as commands
from tests.fencehold.cli.cli_process import error_of, fencehold_run, hold, parsed, prepare
from tests.fencehold.cli.outbox_scene import added

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


def test_the_examples_of_the_outbox_have_the_fields_that_are_printed(sqlite_url, cli):
    prepare(sqlite_url)
    tracking_id = added(sqlite_url, "order.created")
    shown = cli(sqlite_url, "outbox", "show", tracking_id).json["event"]
    assert example("event")["event"].keys() == shown.keys()
    assert example("events")["events"][0].keys() == cli(sqlite_url, "outbox", "ls").json["events"][0].keys()
    retried = cli(sqlite_url, "outbox", "retry", tracking_id).json
    assert example("retried").keys() == retried.keys()
    assert example("retried")["left_alone"][0].keys() == retried["left_alone"][0].keys()
    redrive = cli(sqlite_url, "outbox", "redrive", "--type", "a", "--root-cause", "b").json
    assert example("redriven").keys() == redrive.keys()
    assert example("deleted").keys() == cli(sqlite_url, "outbox", "purge", "--older-than", "1d").json.keys()
    assert example("stats")["stats"].keys() == cli(sqlite_url, "outbox", "stats").json["stats"].keys()
    doctor = cli(sqlite_url, "doctor").json
    assert example("healthy").keys() == doctor.keys()
    assert example("checks")["checks"][0].keys() == doctor["checks"][0].keys()


def test_the_examples_of_items_have_the_fields_that_are_printed(sqlite_url, cli):
    prepare(sqlite_url)

    async def put():
        async with fencehold.connect(sqlite_url) as store:
            await store.items("k").put("i", state="s", document={})

    asyncio.run(put())
    [listed] = [block["items"] for block in EXAMPLES if isinstance(block.get("items"), list)]
    assert listed[0].keys() == cli(sqlite_url, "items", "ls").json["items"][0].keys()
    assert example("item")["item"].keys() == cli(sqlite_url, "items", "show", "i").json["item"].keys()
    assert example("broken").keys() == cli(sqlite_url, "items", "break", "i", "--yes").json.keys()


def every_command(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path}{name} ")


EVERY_COMMAND = dict(every_command(commands))


@pytest.mark.parametrize("name", sorted(EVERY_COMMAND))
def test_every_command_and_option_is_on_the_page(name):
    command = EVERY_COMMAND[name]
    assert f"## `fencehold {name}" in PAGE
    section = PAGE[: PAGE.index("## `fencehold")] + PAGE[PAGE.index(f"## `fencehold {name}") :].partition("\n## ")[0]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    shared = {"--output", "--outbox"} if name.startswith("outbox ") else {"--output"}
    assert {option for option in options - shared if option not in section} == set()


def test_every_exit_code_is_on_the_page_and_in_the_help():
    table = PAGE[PAGE.index("| exit code") : PAGE.index("In JSON")]
    for name, value in vars(exit_codes).items():
        if name.isupper():
            assert re.search(rf"\b{value}\b", table), name
            assert re.search(rf"^  {value} ", commands.epilog or "", re.MULTILINE), name


def test_the_line_for_cron_on_several_hosts_ends_as_its_job_did_and_shuts_out_the_others_meanwhile(
    sqlite_url, tmp_path, monkeypatch
):
    prepare(sqlite_url)
    [shown] = re.findall(r"^\*\*From cron.*?```sh\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    words = shlex.split(shown)
    (tmp_path / "sleep").write_text(
        f"#!/bin/sh\n{sys.executable} -m fencehold run nightly --no-wait -- true\necho $? > code\n"
    )
    (tmp_path / "backup.sh").write_text("#!/bin/sh\nexit 7\n")
    for name in ("sleep", "backup.sh"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert fencehold_run(sqlite_url, *words[1:])[0] == 7
    assert (tmp_path / "code").read_text() == "75\n"  # of another host that comes while the first still sleeps
