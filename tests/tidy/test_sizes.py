"""A file fits a sitting, a function fits a screen."""

from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, body_lines, functions, parsed

FILE_LINES_MAX = 400
#: A table with one entry per fact: in one file, so that a reader finds every fact of the library there.
TABLES = {"fact_table.py": 500}
FUNCTION_LINES_MAX = 40


def long_files(root: Path) -> list[str]:
    counts = ((path, path.read_text(encoding="utf-8").count("\n")) for path, _ in parsed(root))
    return [
        f"{path.relative_to(root)}: {count} lines"
        for path, count in counts
        if count > TABLES.get(path.name, FILE_LINES_MAX)
    ]


def long_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{function.lineno}: {function.name} has {body_lines(function)} lines"
        for path, tree in parsed(root)
        for function in functions(tree)
        if body_lines(function) > FUNCTION_LINES_MAX
    ]


PLACES = ["src", "tests", "tools", "bench"]


@pytest.mark.parametrize("place", PLACES)
def test_files_are_short(place):
    assert long_files(ROOT / place) == []


@pytest.mark.parametrize("place", PLACES)
def test_functions_are_short(place):
    assert long_functions(ROOT / place) == []


def test_a_long_file_is_found(tmp_path):
    (tmp_path / "fits.py").write_text("x = 1\n" * FILE_LINES_MAX)
    (tmp_path / "long.py").write_text("x = 1\n" * (FILE_LINES_MAX + 1))
    assert long_files(tmp_path) == ["long.py: 401 lines"]


def test_a_long_function_is_found_and_its_docstring_not_counted(tmp_path):
    docstring = '    """' + "words\n" * 60 + '    """\n'
    fits = "def fits():\n" + docstring + "    x = 1\n" * FUNCTION_LINES_MAX
    long = "class C:\n    async def long(self):\n" + "        x = 1\n" * (FUNCTION_LINES_MAX + 1)
    (tmp_path / "a.py").write_text(fits + long)
    found = long_functions(tmp_path)
    assert len(found) == 1
    assert "long has 41 lines" in found[0]
