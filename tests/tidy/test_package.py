"""What a package index is given: complete, in order, and with no address that nobody named."""

import email
import fnmatch
import os
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

VARIABLE = "FENCEHOLD_PROJECT_URL"
ADDRESS = "https://forge.example/owner/fencehold"
#: A build reads these; the image of the service is built from a copy of the tree.
NEEDED = [
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "tools/package_page.py",
    "deploy/haproxy.cfg",
    "src/fencehold/sync.py",
]


def built(folder: Path, address: str | None = None) -> list[Path]:
    """The source distribution, and the wheel that is made of it."""
    kept = {key: value for key, value in os.environ.items() if key != VARIABLE}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    env = kept if address is None else {**kept, VARIABLE: address}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(folder.iterdir())


def metadata(files: list[Path]) -> Message:
    [wheel] = [file for file in files if file.suffix == ".whl"]
    with zipfile.ZipFile(wheel) as packed:
        [name] = [one for one in packed.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(packed.read(name))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return built(tmp_path_factory.mktemp("dist"))


def test_twine_finds_nothing_wrong_with_what_is_built(distributions: list[Path]) -> None:
    assert [file.name.partition("-")[0] for file in distributions] == ["fencehold", "fencehold"]
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, distributions)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_readme_is_the_long_description_and_no_address_is_made_up(distributions: list[Path]) -> None:
    found = metadata(distributions)
    assert found["Description-Content-Type"] == "text/markdown"
    assert str(found.get_payload()).lstrip().startswith("# fencehold")
    assert found.get_all("Project-URL") is None


def test_whoever_publishes_names_the_address_and_the_readmes_links_lead_there(tmp_path: Path) -> None:
    found = metadata(built(tmp_path, ADDRESS))
    assert f"Source, {ADDRESS}" in found.get_all("Project-URL", [])
    text = str(found.get_payload())
    assert f"]({ADDRESS}/blob/HEAD/docs/guarantees.md)" in text
    assert "](docs/" not in text


def test_an_address_with_a_password_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="must be an https address"):
        built(tmp_path, "https://user:secret@forge.example/owner/fencehold")


def test_what_an_image_leaves_out_is_not_needed_to_build_the_package() -> None:
    ignoring = ROOT / ".dockerignore"
    lines = ignoring.read_text("utf-8").split("\n") if ignoring.exists() else []
    assert [path for path in NEEDED if is_ignored(path, lines)] == []


def is_ignored(path: str, lines: list[str]) -> bool:
    """The last line that matches the path, or a folder above it, decides."""
    places = [path, *(str(folder) for folder in Path(path).parents if str(folder) != ".")]
    answer = False
    for line in (one.strip() for one in lines):
        pattern = line.removeprefix("!").strip("/").removeprefix("**/")
        if pattern and not line.startswith("#") and any(fnmatch.fnmatch(place, pattern) for place in places):
            answer = not line.startswith("!")
    return answer


def test_a_needed_file_that_is_left_out_is_found() -> None:
    assert is_ignored("README.md", ["# all pages", "*.md"])
    assert is_ignored("tools/package_page.py", ["/tools"])
    assert not is_ignored("README.md", ["*.md", "!README.md"])
