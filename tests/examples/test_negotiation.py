"""The example of the documentation, as a reader would run it: a processor dies and no step is lost or repeated."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "negotiation.py"


@pytest.mark.parametrize("database", ["sqlite_url", "postgres_url"])
def test_a_processor_killed_half_way_leaves_no_state_skipped_or_repeated(
    request: pytest.FixtureRequest, database: str
) -> None:
    command = [sys.executable, EXAMPLE, request.getfixturevalue(database)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of processor" in done.stdout
    assert done.stdout.splitlines()[-1] == "finalized 60, lost 0, states skipped 0, states repeated 0"
    assert done.stderr == ""
