"""What a test run says at its very end of what it left out, summed over the parts that ran at once.

No registry brings a SQL Server, so most runs are without one; a green run must not be taken for more than it was.
"""

from __future__ import annotations

import json
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

    def miss(self, what: str, tests: int = 1) -> None:
        self.missing[what] = self.missing.get(what, 0) + tests

    def append_to(self, path: Path) -> None:
        """One line, so that parts that end at the same time do not write into each other's."""
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(self)) + "\n")


def read(path: Path) -> Tally:
    return total(Tally(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def total(parts: Iterable[Tally]) -> Tally:
    whole = Tally()
    for part in parts:
        whole.long_not_run += part.long_not_run
        whole.run += part.run
        whole.not_run += part.not_run
        whole.version = whole.version or part.version
        whole.checked += part.checked
        for what, tests in part.missing.items():
            whole.miss(what, tests)
    return whole


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


def counted(tests: int) -> str:
    return f"{tests} test{'s' if tests > 1 else ''}"
