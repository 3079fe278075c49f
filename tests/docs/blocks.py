"""Every code block of every page, and the marker on the line before it: an HTML comment that says what a test does.

| marker                           | the block                                                                         |
| -------------------------------- | --------------------------------------------------------------------------------- |
| `<!-- run -->`                   | is executed in a fresh folder                                                     |
| `<!-- part -->`                  | is executed together with the blocks above it, from the last `run` of its page on |
| `<!-- shown: needs an index -->` | is not executed; the marker says why, and begins with one of REASONS              |
| `<!-- output -->`                | is compared with what the block above it printed; `...` stands for anything       |
| `<!-- config -->`                | is parsed; SQL `on sqlite, postgres` is executed there, beside all of our tables  |

More may follow, divided by semicolons: `<!-- run: given store; Ctrl-C after "leads" -->`.

| option                  | meaning                                                                                    |
| ----------------------- | -------------------------------------------------------------------------------------------|
| given store, PG_DSN     | names that the page explains: of tests/docs/given.py, and in capitals variables of a shell |
| on postgres, on cosmos  | every address of that kind in the block is replaced by that of a real database             |
| in a clone              | the fresh folder looks like a clone of this repository                                     |
| prints "text"           | that is in what it prints                                                                  |
| exits 1                 | that is its exit code, not 0                                                               |
| Ctrl-C after "text"     | it does not end by itself: Ctrl-C is typed when it has printed that                        |
| needs spin              | not run where that program is missing                                                      |
| long                    | left to the long tests; `limit 150`: with this limit in seconds                            |
| by tests/x/test_y.py    | executed or compared by that test, not by those of this folder                             |
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.tidy.tree import ROOT, files

REASONS = ("needs ", "takes ", "measured ", "the form of ", "a fragment of ")
LANGUAGES = {
    "run": {"python", "sh"},
    "part": {"python", "sh"},
    "config": {"json", "yaml", "toml", "ini", "sql"},
}
KINDS = ("run", "part", "shown", "output", "config")
HOW = (
    "write a marker on the line before it: <!-- run -->, <!-- part -->, <!-- shown: needs ... -->, <!-- output --> or "
    "<!-- config --> (all of them: tests/docs/blocks.py)"
)
SQL_DATABASES = {"sqlite", "postgres", "mssql"}
SERVERS = {"postgres", "cosmos"}
FENCE = re.compile(r"(?P<indent> *)(?P<marks>`{3,}|~{3,})(?P<language>.*)")
COMMENT = re.compile(r"<!-- (?P<kind>\w+)(?:: (?P<options>.+))? -->")
LISTS = ("given", "on", "needs")
TEXTS = {"prints": "prints", "Ctrl-C after": "stops"}


@dataclass
class Marker:
    kind: str = ""
    reason: str = ""
    given: list[str] = field(default_factory=list)
    on: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    by: str = ""
    in_clone: bool = False
    long: bool = False
    limit_s: int = 60
    exit_code: int = 0

    @classmethod
    def parsed(cls, line: str) -> Marker:
        """Raises ValueError, with what to write instead."""
        found = COMMENT.fullmatch(line.strip())
        if found is None or found["kind"] not in KINDS:
            raise ValueError(HOW)
        marker, options = cls(found["kind"]), (found["options"] or "").split("; ")
        if marker.kind == "shown":
            marker.reason = options.pop(0)
            if not marker.reason.startswith(REASONS):
                raise ValueError(f"say why it is not run: <!-- shown: ... -->, with one of {', '.join(REASONS)}")
        for option in filter(None, options):
            marker._take(option)
        return marker

    def _take(self, option: str) -> None:
        word, _, rest = option.partition(" ")
        if quoted := re.fullmatch(r'(prints|Ctrl-C after) "(.+)"', option):
            getattr(self, TEXTS[quoted[1]]).append(quoted[2])
        elif word in LISTS and rest:
            getattr(self, word).extend(rest.split(", "))
        elif word == "by" and rest:
            self.by = rest
        elif option == "in a clone":
            self.in_clone = True
        elif option == "long":
            self.long = True
        elif word == "limit" and rest.isdigit():
            self.limit_s = int(rest)
        elif word == "exits" and rest.isdigit():
            self.exit_code = int(rest)
        else:
            raise ValueError(f"{option!r} is no option of a marker: see tests/docs/blocks.py")


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its first line of code
    language: str
    text: str
    before: str  # all of the page that stands before it
    marker: Marker
    fault: str = ""  # what is to be done about its marker

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def variables(self) -> list[str]:
        return [name for name in self.marker.given if not name.isupper()]

    @property
    def is_fragment(self) -> bool:
        """A piece of a program: it uses names that are given, or stands inside an `async def` of the reader's."""
        return self.language == "python" and (bool(self.variables) or awaits(self.text))


def awaits(text: str) -> bool:
    """Whether it has an `await` (or `async with`, `async for`) outside of every function."""
    code = compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return bool(code.co_flags & inspect.CO_COROUTINE)


def pages() -> list[Path]:
    return list(files(ROOT, "*.md"))


def blocks(text: str, page: str) -> Iterator[Block]:
    """Those with a fence around them; an indented one comes with a fault."""
    lines, number = text.splitlines(), 0
    while number < len(lines):
        fence = FENCE.fullmatch(lines[number])
        if fence is not None:
            end = next((at for at in range(number + 1, len(lines)) if lines[at].strip() == fence["marks"]), len(lines))
            code = "\n".join(line[len(fence["indent"]) :] for line in lines[number + 1 : end]) + "\n"
            marker, fault = read_marker(lines[number - 1] if number else "", fence["language"])
            yield Block(page, number + 2, fence["language"], code, "\n".join(lines[:number]), marker, fault)
            number = end
        elif is_indented_block(lines, number):
            yield Block(page, number + 1, "", lines[number], "", Marker(), f"put ``` around it, and {HOW}")
        number += 1


def is_indented_block(lines: list[str], number: int) -> bool:
    blank_before = number == 0 or not lines[number - 1].strip()
    return blank_before and lines[number].startswith(("    ", "\t")) and bool(lines[number].strip())


def read_marker(line: str, language: str) -> tuple[Marker, str]:
    """The marker, and what is wrong with it."""
    try:
        marker = Marker.parsed(line)
    except ValueError as error:
        return Marker(), str(error)
    if not language:
        return marker, "say its language after the ```: python, sh, json, yaml, sql or text"
    if language not in LANGUAGES.get(marker.kind, {language}):
        return marker, f"a block of the kind {marker.kind} is in one of {', '.join(sorted(LANGUAGES[marker.kind]))}"
    known = SQL_DATABASES if language == "sql" else SERVERS
    if not set(marker.on) <= known or (marker.kind == "config" and language == "sql" and not marker.on):
        return marker, f"say where it runs: on one or more of {', '.join(sorted(known))}"
    return marker, ""


def blocks_of(page: str) -> list[Block]:
    return list(blocks((ROOT / page).read_text("utf-8"), page))


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(str(page.relative_to(ROOT)))]


def the_block(page: str, part: str) -> Block:
    """The only block of the page that has this text in it."""
    [found] = [block for block in blocks_of(page) if part in block.text]
    return found


def chains(found: list[Block]) -> list[list[Block]]:
    """Each block to run with the parts and outputs that follow it on its page."""
    together: list[list[Block]] = []
    for block in found:
        if block.marker.kind == "run":
            together.append([block])
        elif block.marker.kind in {"part", "output"} and not block.marker.by:
            assert together, f"{block}: no block to run stands above it"
            assert together[-1][0].page == block.page, f"{block}: no block to run stands above it on its page"
            together[-1].append(block)
    return together
