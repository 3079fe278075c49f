"""docs/outbox-rules.md has each rule that a test cites, and names the tests that do."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from fencehold.testing.conformance.classes import CLASSES, parts
from fencehold.testing.conformance.matrix import NEEDED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "outbox-rules.md"
RULE = re.compile(r"\*\*(RULE-\d{3}-\d{3})\*\* (\S[^\n]*\.)\n\n((?:- `[^`]+`\n)+)")


def citations() -> dict[str, set[str]]:
    """The tests that cite a rule, by rule: those named after it, and those of the suite that say so."""
    cited = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_rule_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef) and (named := re.match(r"test_rule_(\d{3})_(\d{3})_", node.name)):
                cited[f"RULE-{named[1]}-{named[2]}"].add(f"{path.relative_to(ROOT)}::{node.name}")
    for tests in CLASSES:
        for name, part in parts(tests):
            for rule in getattr(part, "proves", ()):
                cited[rule].add(name.replace(".", "::"))
    return cited


def test_the_page_has_each_cited_rule_with_a_sentence_and_the_tests_that_cite_it():
    told = {rule: {*re.findall(r"`([^`]+)`", tests)} for rule, _, tests in RULE.findall(PAGE.read_text("utf-8"))}
    assert told == {rule: tests for rule, tests in citations().items() if rule.startswith("RULE-")}


def test_no_rule_is_on_the_page_twice_or_outside_its_form():
    text = PAGE.read_text("utf-8")
    assert sorted(re.findall(r"\*\*(RULE-[^*]+)\*\*", text)) == sorted({rule for rule, _, _ in RULE.findall(text)})


def test_a_rule_of_a_table_that_the_suite_cites_is_in_the_table():
    assert {rule for rule in citations() if not rule.startswith("RULE-")} <= {*NEEDED}
