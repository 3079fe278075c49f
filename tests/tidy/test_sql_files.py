"""Statements live in .sql files: one per file, named after it, the same names in every dialect."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, docstrings, parsed

BACKENDS = ROOT / "src" / "fencehold" / "backends"
STATEMENT = re.compile(
    r"\bSELECT\b.*\bFROM\b|\bUPDATE\b\s+\S+\s+\bSET\b|\bINSERT\s+INTO\b|\bDELETE\s+FROM\b", re.IGNORECASE | re.DOTALL
)


def misnamed_statements(backends: Path) -> list[str]:
    return [
        f"{path.relative_to(backends)}: the first line is not '-- name: {path.stem}'"
        for dialect in dialects(backends)
        for path in statements(backends, dialect)
        if first_line(path) != f"-- name: {path.stem}"
    ]


def uneven_dialects(backends: Path) -> list[str]:
    names = {one: {path.stem for path in statements(backends, one)} for one in dialects(backends)}
    everything = set().union(*names.values())
    return [f"{one}: no statement {name}" for one in sorted(names) for name in sorted(everything - names[one])]


def dialects(backends: Path) -> list[str]:
    return sorted({path.parent.parent.name for path in backends.glob("*/sql/*.sql")})


def statements(backends: Path, dialect: str) -> Iterator[Path]:
    """Those directly in sql/; migrations, in a folder of their own, differ by nature."""
    return iter(sorted((backends / dialect / "sql").glob("*.sql")))


def first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].rstrip()


def statements_in_python(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{node.lineno}: {' '.join(text.split())[:60]}"
        for path, tree in parsed(root)
        for node, text in texts(tree)
        if STATEMENT.search(text)
    ]


def texts(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Every text in the code, an f-string as one with its fields left out; docstrings are prose."""
    prose = docstrings(tree)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose | inside:
            yield node, node.value


def test_each_statement_is_named_after_its_file():
    assert misnamed_statements(BACKENDS) == []


def test_every_dialect_has_the_same_statements():
    assert uneven_dialects(BACKENDS) == []


@pytest.mark.parametrize("room", ["backends", "runtime"])
def test_python_files_hold_no_statements(room):
    assert statements_in_python(ROOT / "src" / "fencehold" / room) == []


def test_a_misnamed_statement_and_a_missing_one_are_found(tmp_path):
    for place, text in {
        "sqlite/sql/renew.sql": "-- name: renew\n",
        "postgres/sql/renew.sql": "-- name: renew\n",
        "postgres/sql/claim.sql": "-- name: clame\n",
        "postgres/sql/migrations/0001.sql": "CREATE TABLE x ();",
    }.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert misnamed_statements(tmp_path) == ["postgres/sql/claim.sql: the first line is not '-- name: claim'"]
    assert uneven_dialects(tmp_path) == ["sqlite: no statement claim"]


def test_a_statement_in_python_is_found(tmp_path):
    (tmp_path / "a.py").write_text(
        '"""Reads: SELECT x FROM y."""\n'
        'A = "SELECT 1\\n FROM t"\n'
        'B = f"update {table} set n = 1"\n'
        'C = "insert into t values (1)"\n'
        'D = f"DELETE FROM {table}"\n'
        'E = "SELECT pg_sleep(1)"\n'
    )
    assert [line.split(":")[1] for line in statements_in_python(tmp_path)] == ["2", "3", "4", "5"]
