"""A whole run is made of parts, which together are all tests."""

import pytest

from tests.tidy.tree import ROOT, files
from tools import run_tests


def is_in(path: str, part: list[str]) -> bool:
    taken = any(path.startswith(f"{word}/") for word in part)
    return taken and not any(path.startswith(f"{word.removeprefix('--ignore=')}/") for word in part if word[0] == "-")


def test_every_test_is_in_exactly_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    parts = run_tests.places()
    paths = [str(path.relative_to(ROOT)) for path in files(ROOT / "tests", "test_*.py")]
    assert {path: count for path in paths if (count := sum(is_in(path, part) for part in parts)) != 1} == {}


def test_every_folder_that_is_a_part_is_there() -> None:
    assert [path for part in run_tests.PARTS for path in part if not (ROOT / path).is_dir()] == []
