"""Reading the source tree: files, parsed files, and what is defined in them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
NOT_OURS = CACHES | {".git", ".venv", "build", "dist", "node_modules"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(root: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(root.rglob(pattern)):
        if path.is_file() and not NOT_OURS & set(path.relative_to(root).parts):
            yield path


def parsed(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in files(root, "*.py"):
        yield path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def body_lines(function: Function) -> int:
    """Lines from the first statement after the docstring to the last."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    if not body:
        return 0
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1


def docstrings(tree: ast.AST) -> set[int]:
    """The ids of the nodes that are docstrings: prose, not code."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            found.add(id(statement.value))
    return found


def words(identifier: str) -> list[str]:
    """The parts of a name, whatever its case: SubmissionManager and submission_manager give the same two."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    return [part.lower() for part in spaced.split("_") if part]
