"""What is shown as a fragment of a file of this repository is in that file."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import Block, all_blocks
from tests.tidy.tree import ROOT

FRAGMENTS = [block for block in all_blocks() if block.marker.reason.startswith("a fragment of ")]


def code(text: str) -> str:
    """Without docstrings, blank lines and what is said to mypy."""
    text = re.sub(r'^ *""".*?"""\n', "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line.partition("  # type: ignore")[0] for line in text.splitlines())
    return "\n".join(line for line in lines if line)


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_the_fragment_is_in_the_file(block: Block) -> None:
    file = ROOT / block.marker.reason.removeprefix("a fragment of ")
    assert f"\n{code(block.text)}\n" in code(file.read_text("utf-8"))


def test_a_fragment_is_compared_line_by_line() -> None:
    assert code('def f():\n    """Says."""\n\n    x = None  # type: ignore[assignment]\n') == "def f():\n    x = None"
