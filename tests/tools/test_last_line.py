"""A whole run ends with one line that a person can read: what passed, what failed, what was not run and why."""

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.test_servers import ROOT, pytest_in
from tools import last_lines

OF_EVERY_KIND = """
    import pytest

    def test_well():
        pass

    def test_wrong():
        assert 1 == 2

    @pytest.fixture
    def broken():
        raise OSError("no room")

    def test_that_cannot_begin(broken):
        pass

    def test_elsewhere():
        pytest.skip("another system")

    @pytest.mark.needs("no-such-program")
    def test_needy():
        pass

    @pytest.mark.long
    def test_long():
        pass

    def test_asking(mssql_url):
        pass
"""


def test_a_whole_run_ends_with_what_passed_and_what_was_not_run_and_why(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    for _ in range(2):
        pytest_in(tmp_path, OF_EVERY_KIND, FENCEHOLD_TEST_MSSQL_URL="", PYTEST_ADDOPTS=f"--tally={tally}")
    why = (
        "2 for want of no-such-program (not installed), 2 for want of SQL Server (FENCEHOLD_TEST_MSSQL_URL is not set)"
    )
    more = "2 for reasons of their own (SKIPPED, above), 2 marked long (CI=true make test runs them)"
    said = f"2 passed, 4 failed, 6 skipped; not run: {why}, {more}"
    assert last_lines.closing(last_lines.read(tally), 2) == said
    assert last_lines.closing(last_lines.read(tally), 3) == f"{said}; 1 of 3 parts ended without a count: see above"
    assert last_lines.closing(last_lines.Tally(passed=7), 1) == "7 passed, 0 failed, 0 skipped; everything was run"


def test_tests_that_were_skipped_for_one_reason_are_one_line(tmp_path: Path) -> None:
    answer = pytest_in(tmp_path, OF_EVERY_KIND.replace("test_long", "test_elsewhere_too").replace(
        "@pytest.mark.long", "@pytest.mark.skipif(True, reason='another system')"
    ))  # fmt: skip
    said = [line for line in answer.stdout.splitlines() if line.startswith("SKIPPED")]
    assert said.count("SKIPPED [2] another system") == 1
    assert len(said) == len(set(said)) == 3


def test_that_line_is_the_last_one_of_the_run(tmp_path: Path) -> None:
    """In a tree of three small parts."""
    for folder in ("submission_manager", "pgleaderlock", "tidy"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_it.py").write_text("def test_it():\n    pass\n")
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    options = f"-p tests.conftest -p no:cacheprovider -c {ROOT / 'pyproject.toml'} --rootdir {tmp_path}"
    answer = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "run_tests.py")], cwd=tmp_path, capture_output=True, text=True,
        timeout=50, env={**kept, "PYTEST_ADDOPTS": options, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    last = answer.stdout.splitlines()[-1]
    assert (answer.returncode, last) == (0, "3 passed, 0 failed, 0 skipped; everything was run"), answer.stderr
