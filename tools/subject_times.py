"""A pytest plugin that prints, after a run, where its time went: seconds and tests for each folder of tests.

    make pytest ARGS="-p tools.subject_times"                          one part, everything one after another
    PYTEST_ADDOPTS="-p tools.subject_times" make pytest                the four parts at once, a table for each

Of the folders in OPENED it names those below, because they hold most of the tests.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import Any

import pytest

OPENED = {
    "tests", "tests/fencehold", "tests/fencehold/backends", "tests/fencehold/runtime", "tests/submission_manager",
    "tests/across_packages",
}  # fmt: skip
_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()


def subject(nodeid: str) -> str:
    """The folder that a test is counted under."""
    path = PurePosixPath(nodeid.partition("::")[0]).parent
    while str(path.parent) not in OPENED and len(path.parts) > 1:
        path = path.parent
    return str(path)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = subject(report.nodeid)
    _seconds[folder] += report.duration
    _tests[folder] += report.when == "call"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    whole_s = sum(_seconds.values())
    for folder, seconds in _seconds.most_common():
        terminalreporter.write_line(f"{seconds:8.1f} s {seconds / whole_s:5.0%} {_tests[folder]:6} tests  {folder}")
    terminalreporter.write_line(f"{whole_s:8.1f} s in all")
