"""What a test run says at its very end: what it left out and why, summed over the parts that ran at once, and one line.

No registry brings a SQL Server, so most runs are without one; a green run must not be taken for more than it was.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

VARIABLE = "FENCEHOLD_TEST_MSSQL_URL"


@dataclass
class Tally:
    """Of one part of a run: long tests left out; tests with a SQL Server and without, and what was checked without.

    `missing` counts the tests that were not run for want of something else, by what it was.
    """

    long_not_run: int = 0
    run: int = 0
    not_run: int = 0
    version: str = ""
    checked: list[str] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0  # also those that could not begin, or not end
    skipped: int = 0
    parts: int = 1

    def miss(self, what: str, tests: int = 1) -> None:
        self.missing[what] = self.missing.get(what, 0) + tests

    def append_to(self, path: Path) -> None:
        """One line, so that parts that end at the same time do not write into each other's."""
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(self)) + "\n")


def read(path: Path) -> Tally:
    return total(Tally(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def total(parts: Iterable[Tally]) -> Tally:
    whole = Tally(parts=0)
    for part in parts:
        whole.passed += part.passed
        whole.failed += part.failed
        whole.skipped += part.skipped
        whole.parts += part.parts
        whole.long_not_run += part.long_not_run
        whole.run += part.run
        whole.not_run += part.not_run
        whole.version = whole.version or part.version
        whole.checked += part.checked
        for what, tests in part.missing.items():
            whole.miss(what, tests)
    return whole


def skipped(reasons: Iterable[str]) -> list[str]:
    """One line per reason, however many tests were skipped for it."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [f"SKIPPED [{tests}] {reason}" for reason, tests in sorted(counts.items())]


def lines(tally: Tally) -> list[str]:
    """The last lines; that SQL Server was not run is the very last."""
    said = [f"NOT RUN: {what}: {counted(tests)}" for what, tests in sorted(tally.missing.items())]
    if tally.long_not_run:
        said.append(f"NOT RUN: {counted(tally.long_not_run)} marked long; CI=true make test runs them too (35 minutes)")
    if tally.checked:
        said.append(f"SQL Server: checked without a server: {', '.join(sorted(tally.checked))}")
    if tally.run:
        said.append(f"SQL Server: {counted(tally.run)} on {tally.version}")
    if tally.not_run:
        said.append(f"SQL Server: NOT RUN ({VARIABLE} is not set): {counted(tally.not_run)}")
    return said


def closing(tally: Tally, parts: int) -> str:
    """The whole run of so many parts in one line: what passed, what failed, what was not run and why."""
    counts = f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped"
    reasons = [f"{tests} for want of {what}" for what, tests in sorted(tally.missing.items())]
    if tally.not_run:
        reasons.append(f"{tally.not_run} for want of SQL Server ({VARIABLE} is not set)")
    if others := tally.skipped - tally.not_run - sum(tally.missing.values()):
        reasons.append(f"{others} for reasons of their own (SKIPPED, above)")
    if tally.long_not_run:
        reasons.append(f"{tally.long_not_run} marked long (CI=true make test runs them)")
    left_out = f"not run: {', '.join(reasons)}" if reasons else "everything was run"
    if tally.parts < parts:
        left_out += f"; {parts - tally.parts} of {parts} parts ended without a count: see above"
    return f"{counts}; {left_out}"


def counted(tests: int) -> str:
    return f"{tests} test{'s' if tests > 1 else ''}"
