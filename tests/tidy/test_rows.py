"""What a statement returned is read by name: a number as the index of a row says nothing, and lies after a change."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, parsed

#: Where rows of a database are turned into values.
PLACES = ("fencehold/backends", "pgleaderlock", "mssqlleaderlock")
ROW = re.compile(r"(^|_)row$")


def rows_by_number(src: Path) -> list[str]:
    return [
        f"{path.relative_to(src)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in parsed(src)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and is_number(node.slice) and is_row(node.value)
    ]


def is_number(index: ast.expr) -> bool:
    """A number, also by a name in capitals (`PLACE`) or as the sum of some."""
    if isinstance(index, ast.BinOp):
        return is_number(index.left) or is_number(index.right)
    if isinstance(index, ast.UnaryOp):
        return is_number(index.operand)
    if isinstance(index, ast.Constant):
        return isinstance(index.value, int)
    return isinstance(index, ast.Name | ast.Attribute) and ast.unparse(index).rpartition(".")[2].isupper()


def is_row(value: ast.expr) -> bool:
    """`row`, `old_row`, one of `rows`, or what a cursor or a session's statement gives; `rows[0]` itself is a row."""
    if isinstance(value, ast.Await):
        return is_row(value.value)
    if isinstance(value, ast.BoolOp):
        return any(map(is_row, value.values))
    if isinstance(value, ast.Name):
        return bool(ROW.search(value.id))
    if isinstance(value, ast.Subscript):
        return is_number(value.slice)
    return any(isinstance(one, ast.Attribute) and one.attr in ("fetchone", "_row") for one in called(value))


def called(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.Call):
        yield value.func


def test_no_row_is_read_by_number():
    found = rows_by_number(ROOT / "src")
    assert [line for line in found if line.startswith(PLACES)] == []


def test_a_row_that_is_read_by_number_is_found(tmp_path):
    (tmp_path / "a.py").write_text(
        "PLACE = 8\na = row[14]\nb = old_row[PLACE]\nc = rows[0][1]\nd = cursor.execute(x).fetchone()[0]\n"
        "e = (await cursor.fetchone() or (1,))[0]\nf = (await self._row(x))[0]\n"
        "g = sum(row[n + 1] for row in rows)\n"
        "right = rows[0], row[name], row['id'], words[3], names[PLACE], row[:2], keys[0].row\n"
    )
    found = [line.partition(":")[2] for line in rows_by_number(tmp_path)]
    assert [line.partition(":")[0] for line in found] == ["2", "3", "4", "5", "6", "7", "8"]
