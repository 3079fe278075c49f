"""A relative path of SQLite in the wrong folder is told before a second database, and a second leader, is made."""

import asyncio
from pathlib import Path

import pytest

import fencehold
from fencehold.model.errors import ConfigurationError
from tests.fencehold.cli.cli_process import error_of

RELATIVE = "sqlite:///app.db"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path.resolve()


def missing(url: str) -> ConfigurationError:
    """What the library says of it."""

    async def read() -> None:
        async with fencehold.connect(url) as store:
            await store.leases.read("nightly")

    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(read())
    assert caught.value.code == "schema_missing"
    return caught.value


def asks_before_init(hint: str) -> bool:
    return "right folder?" in hint and hint.index("right folder?") < hint.index("`fencehold init`")


def test_a_file_that_is_missing_is_named_in_full_and_its_folder_asked_about_before_init(folder: Path, cli):
    answer = cli(RELATIVE, "ls")
    for code, error in ((answer.code, answer.error), error_of(RELATIVE, "run", "nightly", "--", "true")):
        assert (code, error["code"]) == (78, "schema_missing")
        assert error["message"] == f"{folder}/app.db does not exist."
        assert asks_before_init(error["hint"])


def test_a_file_of_another_folder_is_asked_about_without_a_word_of_relative_paths(folder: Path, cli):
    (folder / "data").mkdir()
    for there in (folder.parent / "app.db", folder.parent.parent / "app.db"):
        hint = cli(f"sqlite:///{there}", "ls").error["hint"]
        assert asks_before_init(hint)
        assert "relative" not in hint
    for here in (f"sqlite:///{folder}/app.db", "sqlite:///data/app.db"):
        assert "A relative path begins where the program was started" in cli(here, "ls").error["hint"]


def test_the_library_says_the_same_of_a_missing_file_and_of_missing_tables(folder: Path):
    error = missing(RELATIVE)
    assert error.message == f"{folder}/app.db does not exist."
    assert asks_before_init(error.hint)
    (folder / "app.db").touch()
    error = missing(RELATIVE)
    assert error.message.startswith(f"{folder}/app.db: no such table")
    assert asks_before_init(error.hint)


def test_doctor_names_the_file_without_tables_in_full(folder: Path, cli):
    (folder / "app.db").touch()
    [found] = [one for one in cli(RELATIVE, "doctor").json["checks"] if one["check"] == "lease table"]
    assert f"no such tables in {folder}/app.db" in found["detail"]
    assert asks_before_init(found["hint"])


def test_init_says_which_file_it_made_and_which_it_found(folder: Path, cli, cli_text):
    made = cli_text(RELATIVE, "init").out
    assert made.startswith(f"fencehold_leases in {folder}/app.db (a new file): applied 0001_leases")
    assert cli_text(RELATIVE, "init").out == f"fencehold_leases in {folder}/app.db: already up to date\n"
    again = cli(RELATIVE, "init").json
    assert (again["file"], again["file_made"]) == (f"{folder}/app.db", False)


def test_a_store_keeps_its_file_when_the_process_goes_to_another_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    store = fencehold.connect(RELATIVE)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")

    async def init() -> None:
        async with store:
            await store.init()

    asyncio.run(init())
    assert (folder / "app.db").exists()
    assert not (folder / "elsewhere" / "app.db").exists()


def test_a_relative_path_in_a_folder_that_is_gone_is_a_mistake_with_a_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    with pytest.raises(ConfigurationError, match="is gone") as caught:
        fencehold.connect(RELATIVE)
    assert caught.value.code == "bad_url"
