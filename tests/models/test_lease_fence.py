"""The model of lease and fence holds, and fails on the right claim as soon as any one part of it is taken away."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "lease_fence.pml"
PAGE = ROOT / "docs" / "model-checking.md"
SEARCH_LIMIT_S = 150
MEMORY_LIMIT_MB = 2_000

HOLDS = (
    "",
    "-DSAMEID",
    "-DN=3 -DEPOCHS=2 -DGIVE_UPS=1",
)
FAILS = {
    "-DFENCE=0": "C1",
    "-DFENCE=2": "C1",
    "-DFENCE=3 -DSAMEID": "C1",
    "-DFENCE=3": "C1",
    "-DNO_EPOCH_BUMP": "C2",
    "-DDEADLINE_FROM_ANSWER": "C3",
    "-DRETRY_FULL_LEASE": "C3",
    "-DNO_TX_TIMEOUT": "C4",
}
# How each claim's assertion reads in the checker's verdict.
CLAIMS = {"mine>=written_epoch": "C1", "written_by==": "C2", "left[other]==": "C3", "blocked<=": "C4"}


def output_of(command: list[str], workplace: Path) -> str:
    done = subprocess.run(command, cwd=workplace, check=True, capture_output=True, text=True, timeout=SEARCH_LIMIT_S)
    return done.stdout


def verdict_of(switches: str, workplace: Path, optimise: str, model: Path = MODEL) -> str:
    """The checker's whole report on the model with these switches."""
    output_of(["spin", "-a", *switches.split(), str(model)], workplace)
    output_of(["cc", optimise, "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_LIMIT_MB}", "-o", "pan", "pan.c"], workplace)
    return output_of(["./pan", "-m1000000"], workplace)


def claim_broken_in(report: str) -> str | None:
    violated = re.search(r"assertion violated (.*) \(at depth", report)
    if violated is None:
        return None
    return next(claim for words, claim in CLAIMS.items() if words in violated[1])


@pytest.mark.needs("spin", "cc")
@pytest.mark.limit(180)
@pytest.mark.parametrize("switches", HOLDS)
def test_no_interleaving_breaks_the_lease_or_the_fence(switches: str, tmp_path: Path) -> None:
    report = verdict_of(switches, tmp_path, "-O2")
    assert "errors: 0" in report, report
    # A search cut short by a limit, or a step that can never be taken, would make the verdict empty.
    assert "Search not completed" not in report
    assert "max search depth too small" not in report
    unreached = re.findall(r'state \d+, "(.*)"', report)
    assert set(unreached) == {"-end-"}, report


@pytest.mark.needs("spin", "cc")
@pytest.mark.limit(180)
@pytest.mark.parametrize("switches", FAILS)
def test_without_any_one_of_its_parts_the_model_fails_on_the_claim_that_part_upholds(
    switches: str, tmp_path: Path
) -> None:
    # Found within a second; an optimised build would take longer than the search.
    assert claim_broken_in(verdict_of(switches, tmp_path, "-O0")) == FAILS[switches]


def test_the_page_lists_exactly_the_checks_that_are_run() -> None:
    rows = re.findall(r"^\| `(.*?)` +\|.*\| (holds|fails C\d) +\|", PAGE.read_text(), re.MULTILINE)
    listed = {("" if switches == "(none)" else switches): outcome for switches, outcome in rows}
    assert listed == {**dict.fromkeys(HOLDS, "holds"), **{key: f"fails {claim}" for key, claim in FAILS.items()}}
