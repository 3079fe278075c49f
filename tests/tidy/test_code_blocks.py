"""Every code block of every page says by a marker what a test does with it; tests/docs/blocks.py has the markers."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import REASONS, Block, all_blocks, blocks, chains
from tests.docs.given import GIVEN
from tests.tidy.tree import ROOT

BLOCKS = all_blocks()
CODE = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)


def faults(found: list[Block]) -> list[str]:
    return [f"{block}: {block.fault}" for block in found if block.fault]


def unexplained(block: Block) -> list[str]:
    """What it is given, and the page does not name above it."""
    prose = CODE.sub("", block.before)
    return [name for name in block.marker.given if f"`{name.split()[-1]}`" not in prose]


def test_every_block_has_a_marker() -> None:
    assert len(BLOCKS) > 80
    assert faults(BLOCKS) == []


def test_every_part_stands_below_a_block_to_run() -> None:
    assert all(chain[0].marker.kind == "run" for chain in chains(BLOCKS))


def test_what_a_block_is_given_is_known_to_the_tests_and_explained_by_the_page() -> None:
    assert {name for block in BLOCKS for name in block.variables} <= set(GIVEN)
    assert {str(block): names for block in BLOCKS if (names := unexplained(block))} == {}


def test_the_test_that_a_marker_names_reads_that_page() -> None:
    for block in BLOCKS:
        if path := block.marker.by:
            assert block.page.rpartition("/")[2] in (ROOT / path).read_text("utf-8"), f"{block}: {path}"


@pytest.mark.parametrize(
    ("line", "fence", "told"),
    [
        ("", "```python", "write a marker on the line before it"),
        ("<!-- runs -->", "```python", "write a marker on the line before it"),
        ("<!-- shown -->", "```python", "say why it is not run"),
        ("<!-- shown: because -->", "```python", "say why it is not run"),
        ("<!-- run: quickly -->", "```python", "'quickly' is no option"),
        ("<!-- run -->", "```", "say its language"),
        ("<!-- run -->", "```json", "is in one of python, sh"),
        ("<!-- config -->", "```sql", "say where it runs"),
        ("<!-- run: on mysql -->", "```sh", "say where it runs: on one or more of cosmos, postgres"),
    ],
)
def test_a_block_without_a_right_marker_is_found_and_told_what_to_write(line: str, fence: str, told: str) -> None:
    [fault] = faults(list(blocks(f"text\n{line}\n{fence}\ncode\n```\n", "page.md")))
    assert fault.startswith("page.md:4: ")
    assert told in fault


def test_an_indented_block_is_found() -> None:
    [fault] = faults(list(blocks("text\n\n    code\n    more\n", "page.md")))
    assert "put ``` around it" in fault


def test_a_right_marker_is_none() -> None:
    right = [f"<!-- shown: {reason}x -->" for reason in REASONS]
    right += ['<!-- run: given store, async conn; on postgres; prints "a" -->', "<!-- part -->", "<!-- output -->"]
    for line in right:
        [block] = blocks(f"{line}\n```python\npass\n```\n", "page.md")
        assert block.fault == ""


def test_a_name_that_the_page_does_not_explain_is_found() -> None:
    [block] = blocks("the `url`\n<!-- run: given url, store -->\n```python\n`store`\n```\n", "page.md")
    assert unexplained(block) == ["store"]
