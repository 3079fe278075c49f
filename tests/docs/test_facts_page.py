"""docs/facts.md lists every fact that the library reports."""

from tests.tidy.tree import ROOT
from tools.facts_page import page


def test_the_page_of_facts_is_current() -> None:
    assert (ROOT / "docs" / "facts.md").read_text(encoding="utf-8") == page(), "run: make facts"
