"""Every program of the pages, pieces of programs too, passes `mypy --strict`, and so do the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import all_blocks, chains
from tests.docs.programs import Step, program, steps
from tests.docs.test_shown_blocks import FRAGMENTS
from tests.tidy.tree import ROOT, files
from tests.types.checkers import mypy

BLOCKS = [block for block in all_blocks() if block.language in {"python", "sh"}]
#: A fragment of a file is compared with that file, which is checked as a whole.
SHOWN = [
    Step([block], [])
    for block in BLOCKS
    if (block.marker.kind, block.language) == ("shown", "python") and block not in FRAGMENTS
]
PROGRAMS = [step for chain in chains(BLOCKS) for step in steps(chain) if step.language == "python"] + SHOWN


@pytest.mark.long
@pytest.mark.limit(300)
def test_every_program_of_every_page_passes_mypy_strict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", f"{ROOT}:{ROOT / 'tests' / 'docs'}")  # where a page's own modules are
    written = {f"{step.name}.py": program(step.blocks) for step in PROGRAMS}
    assert len(written) > 25
    assert list(map(str, mypy(tmp_path, written))) == []


@pytest.mark.long
@pytest.mark.limit(300)
def test_every_example_passes_mypy_strict(tmp_path: Path) -> None:
    examples = {path.name: path.read_text("utf-8") for path in files(ROOT / "examples", "*.py")}
    assert len(examples) > 2
    assert list(map(str, mypy(tmp_path, examples))) == []
