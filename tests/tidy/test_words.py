"""One word for one thing: names that said nothing, or the same as another, do not come back. See docs/glossary.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, parsed

#: an old word, and what is said now
INSTEAD = {
    "flight": "claimed event", "flights": "claimed events", "crew": "worker background", "ledger": "pending results",
    "pulse": "liveness", "desk": "admin", "teller": "facts", "utils": "its subject",
    "helpers": "its subject", "misc": "its subject", "common": "its subject",
}  # fmt: skip
#: How many are being worked on is called so by everybody.
ALLOWED = {"in_flight"}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def old_words(src: Path) -> list[str]:
    return [
        f"{path.relative_to(src)}:{line}: {name}: write {INSTEAD[word]}"
        for path, tree in parsed(src)
        for line, name in [(0, path.stem), *names(tree)]
        if name not in ALLOWED
        for word in (found.lower() for found in WORD.findall(name))
        if word in INSTEAD
    ]


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that the file gives to something."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def test_no_old_word_has_come_back():
    assert old_words(ROOT / "src") == []


@pytest.mark.parametrize("text", ["class EventDesk: ...", "flight = 1", "def f(crew): ...", "self._ledger = 1"])
def test_an_old_word_is_found(tmp_path, text):
    (tmp_path / "a.py").write_text(text)
    assert len(old_words(tmp_path)) == 1


def test_every_word_of_the_glossary_stands_once():
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE)[2:]
    assert len(words) >= 25
    assert len(words) == len(set(words))
