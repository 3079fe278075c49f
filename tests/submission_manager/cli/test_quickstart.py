"""The commands of --help, run as they are printed: an intent is submitted and delivered. tests/docs runs the page's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from submission_manager.cli.app import EPILOG
from tests.docs import programs

EXAMPLE = EPILOG.partition("\nExample:\n")[2]
#: What --help leaves to the reader: to wait until it serves, and to stop what was started.
COMPLETED = EXAMPLE.replace("curl -d", "curl --silent --retry 9 --retry-connrefused -d") + "kill %1 %2\n"


@pytest.mark.limit(120)
@pytest.mark.needs("bash", "curl")
def test_the_example_of_the_help_delivers(tmp_path: Path) -> None:
    commands = programs.in_bash(programs.with_free_ports(COMPLETED))
    said = programs.ran(commands, tmp_path, programs.environment(), limit_s=100).said
    assert re.findall(r'"status":"(\w+)"', said) == ["accepted"], said
