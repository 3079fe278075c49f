"""Every example runs by the lines that its docstring shows, in a folder like a clone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs import programs
from tests.tidy.tree import ROOT, files

USAGE = re.compile(r"(?:PG_DSN=\S+ )?python examples/[^#\n]*\b")
#: Those that end by themselves are not here: what the others have printed when Ctrl-C is typed.
STOPS = {"json_file_backend.py": ["leads, epoch 1"]}
#: Run by tests/examples/test_negotiation.py, which also judges what it prints.
ELSEWHERE = "negotiation.py"


def usages(path: Path) -> list[str]:
    return USAGE.findall(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")


EXAMPLES = list(files(ROOT / "examples", "*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_says_how_it_is_run(path: Path) -> None:
    assert usages(path)


@pytest.mark.needs("bash")
@pytest.mark.parametrize("usage", [line for path in EXAMPLES if path.name != ELSEWHERE for line in usages(path)])
def test_the_example_runs_as_it_says(usage: str, postgres_url: str, tmp_path: Path) -> None:
    programs.copy_the_tree(tmp_path)
    stops = next((stops for name, stops in STOPS.items() if name in usage), [])
    command = programs.in_bash(programs.with_addresses(usage, {"postgres": postgres_url}))
    ended = programs.ran(command, tmp_path, programs.environment(), stops)
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended.said
    assert all(text in ended.said for text in stops)
