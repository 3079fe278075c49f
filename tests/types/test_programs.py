"""What a type checker says of programs that use the package: nothing of right ones, and of wrong ones what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.types import checkers
from tests.types.checkers import Report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
MISTAKE = re.compile(r"# wrong: (\S+) (\S+)$")
WRONG = (HERE / "wrong_programs.py").read_text("utf-8")
MISTAKES = {number: found for number, line in enumerate(WRONG.splitlines(), 1) if (found := MISTAKE.search(line))}

Check = Callable[[Path, dict[str, str]], list[Report]]
#: Each with the number of its column in the comments of wrong_programs.py.
CHECKERS = [
    pytest.param(checkers.mypy, 1, id="mypy"),
    pytest.param(checkers.pyright, 2, id="pyright", marks=pytest.mark.needs("node", "pyright")),
]

pytestmark = pytest.mark.limit(300)


def blocks(page: str) -> dict[str, str]:
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    assert found, f"{page} shows no program"
    return {f"block_{number}.py": program for number, program in enumerate(found, 1)}


PAGES = ["README.md", "docs/types.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_the_page_passes_mypy_strict(page: str, tmp_path: Path) -> None:
    assert list(map(str, checkers.mypy(tmp_path, blocks(page)))) == []


@pytest.mark.needs("node", "pyright")
@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_the_page_passes_pyright_even_in_its_strict_mode(page: str, tmp_path: Path) -> None:
    assert list(map(str, checkers.pyright(tmp_path, blocks(page), strict=True))) == []


@pytest.mark.long
@pytest.mark.parametrize(("check", "column"), CHECKERS)
def test_everyday_code_passes(check: Check, column: int, tmp_path: Path) -> None:
    program = (HERE / "right_programs.py").read_text("utf-8")
    assert list(map(str, check(tmp_path, {"right_programs.py": program}))) == []


@pytest.mark.long
@pytest.mark.parametrize(("check", "column"), CHECKERS)
def test_every_mistake_is_reported_and_nothing_else(check: Check, column: int, tmp_path: Path) -> None:
    reports = check(tmp_path, {"wrong_programs.py": WRONG})
    unmarked = [str(report) for report in reports if report.line not in MISTAKES]
    said = {(report.line, report.rule) for report in reports}
    missed = [mistake.string.strip() for line, mistake in MISTAKES.items() if (line, mistake[column]) not in said]
    assert (unmarked, missed) == ([], [])
    assert len(MISTAKES) > 60
