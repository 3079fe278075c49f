"""No order of promotions that lose commits gives an epoch out twice; without any part of the rule some order does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.models.test_lease_fence import PAGE, ROOT, verdict_of

MODEL = ROOT / "models" / "promotion.pml"
HOLDS = ("", "-DNODES=4 -DTIMELINES=3 -DGRANTS=2")
FAILS = {
    "-DNO_JUMP": "P1",
    "-DJUMP_ONCE": "P1",
    "-DBORN_AT_1": "P1",
    "-DRENEWAL_RECORDS": "P1",
    "-DTIMELINES_REPEAT": "P1",
    "-DP2_IN_A_SPLIT": "P2",
}
CLAIMS = {"given[": "P1", "highest": "P2"}


@pytest.mark.needs("spin", "cc")
@pytest.mark.limit(180)
@pytest.mark.parametrize("switches", HOLDS)
def test_no_order_of_promotions_gives_an_epoch_out_twice(switches: str, tmp_path: Path) -> None:
    report = verdict_of(switches, tmp_path, "-O2", MODEL)
    assert "errors: 0" in report, report
    assert "Search not completed" not in report
    assert "max search depth too small" not in report
    assert set(re.findall(r'state \d+, "(.*)"', report)) == {"-end-"}, report


@pytest.mark.needs("spin", "cc")
@pytest.mark.limit(180)
@pytest.mark.parametrize("switches", FAILS)
def test_without_any_one_part_of_the_rule_an_epoch_comes_twice(switches: str, tmp_path: Path) -> None:
    report = verdict_of(switches, tmp_path, "-O0", MODEL)
    violated = re.search(r"assertion violated (.*) \(at depth", report)
    assert violated is not None, report
    assert next(claim for words, claim in CLAIMS.items() if words in violated[1]) == FAILS[switches]


def test_the_page_lists_exactly_these_checks() -> None:
    rows = re.findall(r"^\| `(.*?)` +\|.*\| (hold|fail P\d) +\|", PAGE.read_text(), re.MULTILINE)
    listed = {("" if switches == "(none)" else switches): outcome for switches, outcome in rows}
    assert listed == {**dict.fromkeys(HOLDS, "hold"), **{key: f"fail {claim}" for key, claim in FAILS.items()}}
