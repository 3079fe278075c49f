"""docs/fault-matrix.md is what the marks of the tests say, and has no empty cell."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.fault_matrix import Marks, mistakes, page
from tools.fault_vocabulary import CAPABILITIES, DATABASES, FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.limit(240)
def test_the_page_is_current_and_has_no_empty_cell() -> None:
    """By a run of its own, which collects all tests."""
    answer = subprocess.run(
        [sys.executable, "tools/fault_matrix.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=220,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]


def test_a_cell_without_a_test_and_without_a_reason_is_a_mistake() -> None:
    said = mistakes(Marks())
    assert "no test and no reason: kill, outbox, postgres" in said
    assert not any("pgbouncer-session, items, sqlite" in line for line in said)  # it has a reason


def test_a_test_has_its_number_in_each_of_its_cells() -> None:
    marks = Marks()
    marks.tests["kill", "outbox", "postgres"].add("tests/test_it.py::test_it")
    text = page(marks)
    assert "| the process is killed (SIGKILL) |  | [T1](#t1) |" in text
    assert "`tests/test_it.py::test_it`" in text


def test_every_fault_has_a_row_in_the_table_of_each_capability() -> None:
    text = page(Marks())
    assert all(text.count(f"| {fault} |") == len(CAPABILITIES) for fault in FAULTS.values())
    assert text.count(f"| {' | '.join(DATABASES.values())} |") == len(CAPABILITIES)
