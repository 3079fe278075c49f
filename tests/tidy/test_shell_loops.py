"""A command that a test starts ends by itself, also when the test and all that guards the command were killed."""

import ast
import re
from pathlib import Path

from tests.tidy.tree import ROOT, docstrings, parsed

#: `while` and `until` in a shell have no bound of their own; `for i in $(seq 600)` has.
ENDLESS = re.compile(r"\b(while|until)\s[^;]*;\s*do\b")


def endless_loops(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{node.lineno}: {found[0]}"
        for path, tree in parsed(root)
        for prose in [docstrings(tree)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        if (found := ENDLESS.search(node.value))
    ]


def test_no_command_of_a_test_loops_without_a_bound() -> None:
    assert endless_loops(ROOT / "tests") == []


def test_a_loop_without_a_bound_is_found(tmp_path: Path) -> None:
    loops = [f"{word} {test}; {'do'} sleep 1; done" for word in ("while", "until") for test in (":", "[ -e $0 ]")]
    bounded = "for i in $(seq 600); do sleep 1; done"
    (tmp_path / "a.py").write_text("\n".join(f'x = f"{{y}}; touch $0; {one}"' for one in [*loops, bounded]))
    assert [found.partition(":")[2].partition(":")[0] for found in endless_loops(tmp_path)] == ["1", "2", "3", "4"]
