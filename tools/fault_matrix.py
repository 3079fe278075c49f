"""Write docs/fault-matrix.md from the marks of the tests: for each fault, capability and database a test, or why not.

usage: fault_matrix.py [--check]        --check writes nothing and exits 1, saying why, if the page is not current

A test names what it shows: `@pytest.mark.fault("kill", "outbox")`, with the words of fault_vocabulary.py. The databases
are those of its parameters, its folder or its file's name (`test_events_postgres.py`), unless the mark names them:
`@pytest.mark.fault("fork", "leader", "sqlite", "postgres")`. "any" stands for all: for what runs on virtual time and
knows no database. The capability "each" is the one that the test's parameter of that name names. A cell without a test
has a reason in fault_reasons.py.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.fault_reasons import REASONS, Reason
from tools.fault_vocabulary import CAPABILITIES, DATABASES, FAULTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "fault-matrix.md"
SPELLINGS = {"mssql": "sqlserver", "mssqlleaderlock": "sqlserver", "pgleaderlock": "postgres"}
Cell = tuple[str, str, str]  # fault, capability, database

HEAD = """# Which fault is tested where

For each capability a table: a row per fault, a column per database. **T** is a test in which that fault is made to
happen; **R** is the reason why there is none. Both are listed below the tables. Tests on SQL Server are
[not run on the product](sqlserver.md#what-was-run-and-what-was-not), and those on Cosmos DB run on
[a stand-in](cosmos.md#what-our-tests-cannot-show). A test that is in all four columns runs the part that knows no
database. The page is made from the marks of the tests (`make matrix`); a test fails when it has an empty cell.
"""


@dataclass
class Marks:
    """A pytest plugin: which test shows what, and what is wrong with the marks."""

    tests: dict[Cell, set[str]] = field(default_factory=lambda: defaultdict(set))
    mistakes: list[str] = field(default_factory=list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("fault"):
                for cell in self._cells(item, mark.args):
                    self.tests[cell].add(item.nodeid.split("[")[0])

    def _cells(self, item: pytest.Item, words: tuple[str, ...]) -> Iterator[Cell]:
        fault, capability, *named = (*words, "", "")[:2] + words[2:]
        if capability == "each":
            capability = getattr(item, "callspec").params["capability"]  # noqa: B009 - of functions only
        databases = set(named or derived(item))
        if "any" in databases:
            databases = set(DATABASES)
        if fault not in FAULTS or capability not in CAPABILITIES or not databases or databases - DATABASES.keys():
            self.mistakes.append(f"{item.nodeid}: fault{words!r} on {sorted(databases)}")
            return
        for database in databases:
            yield fault, capability, database


def derived(item: pytest.Item) -> set[str]:
    """The databases that a parameter names; else those of the path."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    said = {SPELLINGS.get(value, value) for value in parameters if isinstance(value, str)} & DATABASES.keys()
    path = item.nodeid.split("::")[0].removesuffix(".py").replace("/", "_").split("_")
    return said or {SPELLINGS.get(part, part) for part in path} & DATABASES.keys()


def collect() -> Marks:
    marks = Marks()
    code = pytest.main(["--collect-only", "-qqq", "--long", "--no-header", str(ROOT / "tests")], plugins=[marks])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"fault_matrix: the tests cannot be collected (pytest's exit code {int(code)})")
    return marks


def cells() -> Iterator[Cell]:
    for capability in CAPABILITIES:
        for fault in FAULTS:
            for database in DATABASES:
                yield fault, capability, database


def reason_for(cell: Cell) -> Reason | None:
    return next((reason for reason in REASONS if reason.covers(cell)), None)


def mistakes(marks: Marks) -> list[str]:
    """Empty cells, marks that say nothing, and reasons that nobody needs any more."""
    open_cells = [cell for cell in cells() if cell not in marks.tests]
    empty = [f"no test and no reason: {', '.join(cell)}" for cell in open_cells if reason_for(cell) is None]
    used = {reason_for(cell) for cell in open_cells}
    idle = [f"a reason that no cell needs: {reason.text}" for reason in REASONS if reason not in used]
    return [*marks.mistakes, *empty, *idle]


def page(marks: Marks) -> str:
    numbers = numbered(test for cell in cells() for test in sorted(marks.tests.get(cell, ())))
    letters = numbered(reason.text for cell in cells() if cell not in marks.tests and (reason := reason_for(cell)))
    lines = [HEAD]
    for capability, title in CAPABILITIES.items():
        lines += [f"## {title}", "", f"| | {' | '.join(DATABASES.values())} |", "| --- " * (len(DATABASES) + 1) + "|"]
        for fault, words in FAULTS.items():
            row = [content((fault, capability, database), marks, numbers, letters) for database in DATABASES]
            lines.append(f"| {words} | {' | '.join(row)} |")
        lines.append("")
    lines += ["## Reasons", "", *(f'- <a id="r{n}"></a>**R{n}** {text}' for text, n in letters.items()), ""]
    lines += ["## Tests", "", *(f'- <a id="t{n}"></a>**T{n}** `{test}`' for test, n in numbers.items())]
    return "\n".join(lines) + "\n"


def numbered(texts: Iterable[str]) -> dict[str, int]:
    return {text: number for number, text in enumerate(dict.fromkeys(texts), 1)}


def content(cell: Cell, marks: Marks, numbers: dict[str, int], letters: dict[str, int]) -> str:
    tests = sorted(numbers[test] for test in marks.tests.get(cell, ()))
    if tests:
        return " ".join(f"[T{n}](#t{n})" for n in tests)
    reason = reason_for(cell)
    return f"[R{letters[reason.text]}](#r{letters[reason.text]})" if reason else ""


def main(arguments: list[str]) -> int:
    marks = collect()
    wrong = mistakes(marks)
    text = page(marks)
    if "--check" not in arguments:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != text:
        wrong.append("docs/fault-matrix.md is not current: run make matrix")
    for line in wrong:
        print(f"fault_matrix: {line}")
    print(f"fault_matrix: {len(marks.tests)} cells with a test, {len(list(cells()))} in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
