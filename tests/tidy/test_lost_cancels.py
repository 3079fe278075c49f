"""No code of ours uses asyncio.wait_for, which on Python 3.11 loses a cancel that comes together with the answer."""

import ast
from pathlib import Path

from tests.tidy.tree import ROOT, parsed


def uses_of_wait_for(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{node.lineno}"
        for path, tree in parsed(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.wait_for"
    ]


def test_a_limit_on_waiting_is_a_time_limit() -> None:
    assert uses_of_wait_for(ROOT / "src") == []


def test_a_use_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("async def a():\n    await asyncio.wait_for(b(), 1)\n")
    assert uses_of_wait_for(tmp_path) == ["a.py:2"]
