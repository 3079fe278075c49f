"""A name says what a thing is for; these say nothing."""

import ast
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, Function, parsed, words

BANNED = {"utils", "helpers", "common", "manager", "misc"}
#: The service's own name, fixed elsewhere.
EXCEPTION = ("submission", "manager")


def empty_names(root: Path) -> list[str]:
    found = [
        f"{path.relative_to(root)}: module {part}"
        for path, _ in parsed(root)
        for part in path.relative_to(root).with_suffix("").parts
        if says_nothing(part)
    ]
    return found + [
        f"{path.relative_to(root)}:{node.lineno}: {node.name}"
        for path, tree in parsed(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | Function) and says_nothing(node.name)
    ]


def says_nothing(name: str) -> bool:
    parts = words(name)
    for start in range(len(parts) - 1):
        if tuple(parts[start : start + 2]) == EXCEPTION:
            parts[start : start + 2] = ["", ""]
    return bool(BANNED & set(parts))


@pytest.mark.parametrize("place", ["src", "tests", "tools", "bench", "examples"])
def test_names_say_something(place):
    assert empty_names(ROOT / place) == []


def test_an_empty_name_is_found(tmp_path):
    (tmp_path / "db_utils.py").write_text("class LeaseManager:\n    def common_part(self): ...\n")
    (tmp_path / "submission_manager").mkdir()
    (tmp_path / "submission_manager" / "a.py").write_text("class SubmissionManager: ...\ndef manage(): ...\n")
    assert empty_names(tmp_path) == [
        "db_utils.py: module db_utils",
        "db_utils.py:1: LeaseManager",
        "db_utils.py:2: common_part",
    ]
