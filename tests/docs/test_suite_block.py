"""The tests that docs/adding-a-backend.md shows for a backend: pytest runs them as they stand, and they pass."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs import programs
from tests.docs.blocks import the_block
from tests.tidy.tree import ROOT


@pytest.mark.long
@pytest.mark.limit(200)
def test_the_suite_runs_as_the_page_shows_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "docs" / "my_backend_harness.py", tmp_path)
    block = the_block("docs/adding-a-backend.md", "from my_backend_harness import")
    (tmp_path / "test_my_backend.py").write_text(block.text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_backend.py"]
    ended = programs.ran(command, tmp_path, {**programs.environment(), "PYTHONPATH": str(ROOT)}, limit_s=190)
    assert ended.code == 0, ended.said
    assert re.search(r"^\d\d+ passed in", ended.out, re.MULTILINE), ended.said
