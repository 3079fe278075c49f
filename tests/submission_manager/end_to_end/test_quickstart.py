"""The commands of the page and of --help, run as they are printed: an intent is submitted and delivered."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from submission_manager.cli.app import EPILOG
from tests.servers.process import free_port
from tests.servers.programs import require

PAGE = Path(__file__).parents[3] / "docs" / "submission-manager.md"
BLOCK = re.compile(r"<!-- run: quickstart -->\n```sh\n(.*?)```", re.DOTALL)
EXAMPLE = EPILOG.partition("\nExample:\n")[2]
#: What --help leaves to the reader: to wait until it serves, and to stop what was started.
COMPLETED = EXAMPLE.replace("curl -d", "curl --silent --retry 9 --retry-connrefused -d") + "kill %1 %2\n"


def run_as_printed(commands: str, folder: Path) -> str:
    """On free ports; nothing that it started outlives it."""
    for port in ("8080", "9090"):
        assert port in commands
        commands = commands.replace(port, str(free_port()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SM_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    shell = subprocess.Popen(
        [require("bash"), "-c", commands], cwd=folder, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        return shell.communicate(timeout=100)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.limit(120)
@pytest.mark.needs("bash", "curl")
def test_the_quickstart_of_the_page_delivers(tmp_path: Path) -> None:
    (commands,) = BLOCK.findall(PAGE.read_text("utf-8"))
    said = run_as_printed(commands, tmp_path)
    assert "ok: 1 target" in said
    assert re.findall(r'"status":"(\w+)"', said) == ["accepted"], said


@pytest.mark.limit(120)
@pytest.mark.needs("bash", "curl")
def test_the_example_of_the_help_delivers(tmp_path: Path) -> None:
    said = run_as_printed(COMPLETED, tmp_path)
    assert re.findall(r'"status":"(\w+)"', said) == ["accepted"], said
