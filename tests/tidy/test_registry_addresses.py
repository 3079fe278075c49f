"""No file names a package source: whoever installs uses their own."""

import re
from pathlib import Path

from tests.tidy.tree import ROOT, files

#: Written in parts, so that this file passes its own test.
HOSTS = [f"{name}.org" for name in ("pypi", "pythonhosted", "npmjs", "deb.debian")]
ADDRESS = re.compile("|".join([*(re.escape(host) for host in HOSTS), r"index-url[ =]+\S*:/" + "/"]), re.IGNORECASE)
SIZE_MAX = 2_000_000


def registry_addresses(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()[:80]}"
        for path in files(root, "*")
        if path.stat().st_size <= SIZE_MAX
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if ADDRESS.search(line)
    ]


def test_no_file_names_a_package_source():
    assert registry_addresses(ROOT) == []


def test_an_address_is_found(tmp_path):
    (tmp_path / "a.txt").write_text(f"ok\n--extra-index-url https:/{'/'}mirror.example/simple\n")
    (tmp_path / "b.lock").write_text(f"url = {HOSTS[0]}/simple\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "c").write_text(HOSTS[1])
    assert [line.split(":")[:2] for line in registry_addresses(tmp_path)] == [["a.txt", "2"], ["b.lock", "1"]]
