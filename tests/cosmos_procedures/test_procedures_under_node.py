"""The stored procedures, unmodified, against a server context of our own: every rule, allowed and refused."""

import subprocess
from pathlib import Path

import pytest

from tests.servers.programs import require

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "src" / "fencehold" / "backends" / "cosmos" / "js"


@pytest.mark.needs("node")
@pytest.mark.parametrize("script", ["lease", "nextForState"])
def test_each_rule_holds_in_the_procedure_itself(script):
    command = [str(require("node")), "--test", "--test-reporter=spec", str(HERE / f"{script}.test.mjs")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
