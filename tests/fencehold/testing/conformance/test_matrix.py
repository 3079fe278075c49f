"""The matrix of rules, as an author of a backend sees it: in a repository of its own, with the example of the page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import the_block
from tests.docs.test_run_blocks import agree

ROOT = Path(__file__).parents[4]
PAGE = "docs/adding-a-backend.md"
ELSEWHERE = """
import pytest
from fencehold.testing.conformance.suite import proves

@pytest.mark.parametrize("url", ["sqlite:///a.db", "postgresql://a@b/c", "other://a"])
def test_rule_020_003_updates_without_the_matching_token_are_rejected(url): ...

@proves("items live.save.is_holder")
@pytest.mark.parametrize("url", ["sqlite:///a.db"])
def test_that_fails(url):
    assert False
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The example with its harness and its entry."""
    for name in ("examples/json_file_backend.py", "tests/examples/json_file_harness.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "tests" / "examples" / "test_json_file.py", tmp_path)
    return tmp_path


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "CI"}}
    command = [sys.executable, "-m", "fencehold.testing.conformance", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=repository, env=env, capture_output=True, text=True, timeout=50, check=False)


def row(output: str, table: str, rule: str) -> list[str]:
    """The cells of a rule, by two blanks or more."""
    [found] = re.findall(rf"^{table} .*?^{re.escape(rule)} +(.*?)$", output, re.MULTILINE | re.DOTALL)
    return re.split(r" {2,}", found)


def test_a_stranger_runs_the_suite_and_sees_which_rules_are_proved(repository: Path):
    command, shown = (the_block(PAGE, part).text for part in ("testing.conformance -q", "PENDING.claim.is_due  "))
    assert command.split("#")[0].split()[-2:] == ["-q", "test_json_file.py"], "what is run here"
    answer = run(repository, "test_json_file.py")
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr
    assert agree(f"{shown.rstrip()}...", answer.stdout)


def test_the_tests_that_proved_a_rule_are_named(repository: Path):
    answer = run(repository, "--rule-tests", "test_json_file.py", "-k", "not Crowd")
    assert row(answer.stdout, "leases", "live.renew.is_holder") == ["2"]
    assert "    test_json_file.py::TestJsonFile::TestWalk::test_a_long_walk_never_leaves_the_table" in answer.stdout
    assert row(answer.stdout, "fences", "live.fence.is_holder") == ["n/a"]
    assert row(answer.stdout, "outbox", "PENDING.claim.is_due") == ["n/a"]
    assert "JSON file: needs fenced transactions: Fences, PassingRenewals, SyncFences" in answer.stdout
    assert "specification 001" not in answer.stdout


def test_a_rule_that_the_store_breaks_is_named(repository: Path):
    backend = repository / "examples" / "json_file_backend.py"
    text = backend.read_text("utf-8")
    late = text.replace(
        "now, rows, answers, changed = self._now(),", "now, rows, answers, changed = tick_ago(self._now()),"
    )
    assert late != text
    backend.write_text(f"{late}\n\ndef tick_ago(now):\n    return now - dt.timedelta(microseconds=1)\n", "utf-8")
    answer = run(repository, "test_json_file.py", "-k", "TestRules")
    assert answer.returncode == 1
    assert row(answer.stdout, "leases", "live.release.is_holder") == ["FAILED"]
    assert "the store says Lease(" in answer.stdout, "asserts of the suite are explained"


def test_what_was_not_run_and_what_other_tests_cite_is_shown(repository: Path):
    (repository / "test_elsewhere.py").write_text(ELSEWHERE, "utf-8")
    answer = run(repository, "test_json_file.py", "test_elsewhere.py", "-k", "TestNames or 020 or fails")
    assert answer.returncode == 1, answer.stdout
    assert "leases                                  JSON file  SQLite  PostgreSQL" in answer.stdout
    assert row(answer.stdout, "leases", "live.renew.is_holder") == ["not run"] * 3
    assert row(answer.stdout, "specification 001", "RULE-020-003") == ["n/a", "1", "1"]
    assert row(answer.stdout, "items", "live.save.is_holder") == ["n/a", "FAILED", "not run"]


def test_without_the_plugin_nothing_is_printed(repository: Path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_json_file.py", "-k", "TestSilence"]
    answer = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=50, check=False)
    assert answer.returncode == 0, answer.stdout
    assert "rules" not in answer.stdout
