"""What is shown as a fragment of a file of this repository is in that file; targets and extras that are shown exist."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.docs.blocks import Block, all_blocks
from tests.tidy.tree import ROOT

FRAGMENTS = [block for block in all_blocks() if block.marker.reason.startswith("a fragment of ")]


SHELL = "".join(block.text for block in all_blocks() if (block.marker.kind, block.language) == ("shown", "sh"))


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


def test_what_is_installed_are_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"pip install '[./a-z]*\[([\w,]+)\]'", SHELL)
    assert len(named) > 10
    assert {extra for group in named for extra in group.split(",")} <= set(extras)


def test_what_is_made_are_targets_that_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = re.findall(r"\bmake (\w+)", SHELL)
    assert len(named) > 10
    assert set(named) <= set(targets)
