"""The tests lie where what they test lies: a folder for each package, and in it the folders of src/."""

from collections import Counter
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, parsed

FILES_MAX = 30
PACKAGES = sorted(path.parent.name for path in (ROOT / "src").glob("*/__init__.py"))
#: What is about more than one package, and the folders beside src/ that have tests of their own.
OF_THE_TREE = {"across_packages", "docs", "examples", "models", "servers", "tidy", "tools", "types"}
#: Not in src/: a program that judges the outbox, and the files with which the service is deployed.
MORE = {"fencehold/runtime/outbox/crash_run", "submission_manager/deploy"}


def folders(tests: Path) -> set[Path]:
    return {path.parent.relative_to(tests) for path in files(tests, "*.py")} - {Path()}


def strangers(tests: Path, src: Path) -> list[str]:
    """Folders of tests that are neither of the tree nor those of a folder or a module in src/."""
    return sorted(
        str(folder)
        for folder in folders(tests)
        if folder.parts[0] not in OF_THE_TREE and str(folder) not in MORE
        if not (src / folder).is_dir() and not (src / folder).with_suffix(".py").is_file()
    )


def crowded(tests: Path) -> list[str]:
    counts = Counter(path.parent for path, _ in parsed(tests))
    return [f"{folder.relative_to(tests)}: {count} files" for folder, count in counts.items() if count > FILES_MAX]


def said_twice(tests: Path) -> list[str]:
    """Names of tests that begin with the name of their folder: tests/x/cli/test_cli_help.py."""
    return [
        str(path.relative_to(tests))
        for path in files(tests, "test_*.py")
        if path.stem.startswith(f"test_{path.parent.name.rstrip('s')}_")
    ]


def test_every_folder_of_tests_is_one_of_the_source_or_of_the_tree():
    assert strangers(ROOT / "tests", ROOT / "src") == []
    assert {folder.parts[0] for folder in folders(ROOT / "tests")} == {*PACKAGES, *OF_THE_TREE}


def test_no_folder_of_tests_has_more_files_than_one_can_look_over():
    assert crowded(ROOT / "tests") == []


def test_no_file_repeats_the_name_of_its_folder():
    assert said_twice(ROOT / "tests") == []


@pytest.mark.parametrize("folder", ["unit", "fencehold/postgres", "fencehold/model/system"])
def test_a_folder_of_another_kind_is_found(tmp_path: Path, folder: str):
    for place in (tmp_path / "src" / "fencehold" / "model", tmp_path / "tests" / folder, tmp_path / "tests" / "docs"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "test_it.py").write_text("")
    assert strangers(tmp_path / "tests", tmp_path / "src") == [folder]


def test_a_crowded_folder_and_a_repeated_name_are_found(tmp_path: Path):
    (tmp_path / "items").mkdir()
    for number in range(FILES_MAX + 1):
        (tmp_path / "items" / f"m{number}.py").write_text("")
    assert crowded(tmp_path) == [f"items: {FILES_MAX + 1} files"]
    (tmp_path / "items" / "test_item_rests.py").write_text("")
    (tmp_path / "items" / "test_rests.py").write_text("")
    assert said_twice(tmp_path) == ["items/test_item_rests.py"]
