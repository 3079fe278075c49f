"""What the documents show runs as it stands, and what they point to exists."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of, the_block

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = [block for block in blocks_of("README.md") if block.language == "python"]
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def started(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if key != "PG_DSN"}
    command = [sys.executable, "-W", "error", "program.py"]
    return subprocess.run(
        command, check=False, cwd=folder, capture_output=True, text=True, timeout=50, env={**kept, **variables}
    )


def ran(program: str, folder: Path, **variables: str) -> str:
    """What it printed; it ended well, and without a warning."""
    done = started(program, folder, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def block(part: str) -> str:
    return the_block("README.md", part).text


def test_the_block_of_pgleaderlock_says_at_once_which_address_it_needs(tmp_path: Path) -> None:
    done = started(block("LeaderLock"), tmp_path)
    assert done.returncode == 1
    assert done.stderr == "Set PG_DSN to a PostgreSQL server of yours: postgresql://user@host/db\n"
    assert "`PG_DSN`" in README.partition("## One leader")[0]


def test_the_block_of_pgleaderlock_says_what_it_needs_where_only_the_demo_was_installed(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError('No module named psycopg', name='psycopg')\n")
    done = started(block("LeaderLock"), tmp_path, PG_DSN="postgresql://127.0.0.1/app")
    assert done.returncode == 1
    assert "needs the driver psycopg: pip install" in done.stderr
    before = the_block("README.md", "LeaderLock").before.rpartition("\n## ")[2]
    assert re.search(r"needs the driver psycopg: run it in `make shell`", before)


def test_the_readme_says_how_to_install_from_a_clone_with_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    install = README.partition("## Install")[2]
    assert "pip install '.[cli]'" in install
    named = re.findall(r"pip install '(?:\.|\./fencehold|fencehold)\[([\w,]+)\]'", README)
    assert len(named) > 5
    assert {extra for group in named for extra in group.split(",")} <= set(extras)


def test_the_example_of_pgleaderlock_says_at_once_which_address_it_needs(tmp_path: Path) -> None:
    done = started((ROOT / "examples" / "pgleaderlock_usage.py").read_text("utf-8"), tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("Set PG_DSN to a PostgreSQL server of yours")


def test_an_async_fence_is_awaited_wherever_the_pages_show_one() -> None:
    for page in (README, (ROOT / "docs" / "leader.md").read_text("utf-8")):
        assert "await term.fence(session)" in page
        assert not re.search(r"(?<!await )term\.fence\(session\)", page)


def test_the_blocks_of_the_readme_run_one_after_another_on_the_same_file(tmp_path: Path) -> None:
    programs = [one.text for one in BLOCKS if not one.marker.given]
    assert len(programs) == 6
    for program in programs * 2:
        ran(program, tmp_path)


USE_LEAD = """
async def use() -> None:
    async with fencehold.connect("sqlite:///app.db") as store:
        row = await store.leases.read("nightly")
        assert row is not None
        print("epoch", row.epoch, "held" if row.is_live else "given back")
asyncio.run(use())
"""


def test_the_loop_over_terms_of_the_readme_gives_the_lease_back(tmp_path: Path) -> None:
    assert "epoch 1 given back" in ran(block("async for term in leader.terms()") + USE_LEAD, tmp_path)


USE_BREAK = """
async def use():
    async with fencehold.connect("memory://break") as store:
        async with store.leader("x") as leader:
            async for term in leader.terms():
                break
            print("after break:", term.is_valid)
            row = await store.leases.read("x")
            print("inside:", "held" if row.is_live else "given back")
        row = await store.leases.read("x")
        print("outside:", "held" if row.is_live else "given back")
asyncio.run(use())
"""


def test_what_gives_a_lease_back_is_what_the_pages_say() -> None:
    command = [sys.executable, "-W", "error", "-c", f"import asyncio, fencehold\n{USE_BREAK}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("after break: True\ninside: held\noutside: given back\n", "")
    for page in (README, (ROOT / "docs" / "leader.md").read_text("utf-8")):
        said = " ".join(page.split())
        assert re.search(r"[Ll]eave `async with leader`[^;]{0,40} to give the lease back", said)
        assert re.search(r"`break` (alone does not|only leaves the loop)", said)
        assert not re.search(r"`break`[^.:]* to give the lease back|break +# gives the lease back", said)


def test_the_supervised_job_comes_before_the_loop_in_the_readme() -> None:
    assert README.index("run_as_leader") < README.index("leader.terms()")


def test_the_readme_says_where_its_commands_are_found_right_before_the_first_of_them() -> None:
    said = the_block("README.md", "fencehold init ").before.rpartition("## From the shell")[2]
    assert "`make shell`" in said
    assert "pip install '.[cli]'" in said
    assert "`.venv/bin/python`" in README.partition("```python")[0]


def test_a_shell_of_make_finds_the_commands() -> None:
    typed = "fencehold --version\npgleaderlock --help\nsubmission-manager --help\n"
    kept = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "--no-print-directory", "shell"], cwd=ROOT, input=typed, capture_output=True, text=True, timeout=50,
        check=False, env={**kept, "PATH": os.defpath + os.pathsep + kept["PATH"], "SHELL": "/bin/sh"},
    )  # fmt: skip
    assert (done.returncode, "not found" in done.stderr) == (0, False), done.stderr
    assert done.stdout.startswith("fencehold, version")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert targets == []


def test_the_commands_of_make_in_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = set(re.findall(r"\bmake (\w+)", README))
    assert {"demo", "test", "shell"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
