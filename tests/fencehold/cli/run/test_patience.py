"""`run --wait` and `--no-wait` on a store that does not answer: they end in their time, with the true cause."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator

import pytest

from tests.fencehold.cli.cli_process import error_of, fencehold_run, prepare

SLACK_S = 2.0  # a busy machine starts a process in this


@pytest.fixture
def locked(sqlite_url: str) -> Iterator[str]:
    prepare(sqlite_url)
    with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield sqlite_url


@pytest.fixture
def start_s(sqlite_url: str) -> float:
    """How long a command takes that only starts and asks, on this machine now."""
    prepare(sqlite_url)
    began_s = time.monotonic()
    assert fencehold_run(sqlite_url, "run", "other", "--", "true")[0] == 0
    return time.monotonic() - began_s


@pytest.mark.parametrize(
    ("patience", "most_s"),
    [
        pytest.param(["--wait", "2s"], 2.0, id="2s"),
        pytest.param(["--wait", "8s"], 8.0, id="8s", marks=pytest.mark.long),
        pytest.param(["--no-wait"], 5.0, id="no-wait", marks=pytest.mark.long),
    ],
)
def test_the_wait_for_a_locked_file_ends_in_its_time(
    start_s: float, locked: str, patience: list[str], most_s: float
) -> None:
    began_s = time.monotonic()
    code, error = error_of(locked, "run", "job", *patience, "--", "true")
    took_s = time.monotonic() - began_s
    assert (code, "[busy]" in error["message"]) == (69, True)
    assert took_s < most_s + 2 * start_s + SLACK_S, "before: 3 to 5 s more"


def test_the_last_line_has_the_cause_and_its_own_hint(locked: str) -> None:
    code, _, err = fencehold_run(locked, "run", "job", "--wait", "2s", "--", "true")
    *_, message, hint = err.splitlines()
    assert code == 69
    assert message.endswith("stayed locked; nothing was changed.")
    assert hint == "  hint: Another process kept the write lock; keep transactions on this file short."
    assert "it is waited for" not in err
