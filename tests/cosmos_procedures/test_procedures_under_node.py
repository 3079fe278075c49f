"""The stored procedures, unmodified, against a server context of our own: every rule, allowed and refused."""

import subprocess
from pathlib import Path

import pytest

from fencehold.model.items import RULES
from tests.servers.programs import require

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "src" / "fencehold" / "backends" / "cosmos" / "js"


@pytest.mark.needs("node")
@pytest.mark.parametrize("script", ["lease", "nextForState"])
def test_each_rule_holds_in_the_procedure_itself(script):
    command = [str(require("node")), "--test", "--test-reporter=spec", str(HERE / f"{script}.test.mjs")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_each_rule_is_cited_by_the_procedure_that_implements_it():
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in SCRIPTS.glob("*.js")}
    assert {name: text[0] for name, text in lines.items()} == {name: f"// name: {name}" for name in lines}
    headers = [line.removeprefix("// rules: ") for text in lines.values() for line in text if "// rules: " in line]
    cited = [rule for header in headers for rule in header.split()]
    assert sorted(cited) == sorted(rule.id for rule in RULES)
