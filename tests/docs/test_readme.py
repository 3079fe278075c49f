"""What the documents show runs as it stands, and what they point to exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
USE_FENCE = """
async def use():
    async with fencehold.connect("sqlite:///app.db") as store:
        async with store.leader("other") as leader:
            await leader.wait_for_leadership()
            send_report(leader.term, "app.db")
asyncio.run(use())
"""


def test_every_python_block_of_the_readme_runs_in_order_in_an_empty_folder(tmp_path: Path) -> None:
    blocks = dict(BLOCK.findall(README))
    assert list(blocks) == ["leader", "fence", "outbox", "items", "sync"], "each block says what it is"
    program = blocks["leader"] + blocks["fence"] + USE_FENCE + blocks["outbox"] + blocks["items"] + blocks["sync"]
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "epoch 1 until" in done.stdout
    assert "handling report.created {'id': 8} try 1" in done.stdout
    assert "AGREED" in done.stdout


SHOWN = re.compile(r"<!-- show: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
USE_LEAD = """
async def use():
    async with fencehold.connect("sqlite:///app.db") as store:
        await lead(store)
        row = await store.leases.read("nightly")
        print("epoch", row.epoch, "held" if row.is_live else "given back")
asyncio.run(use())
"""


def test_the_loop_over_terms_of_the_readme_runs_and_gives_the_lease_back(tmp_path: Path) -> None:
    program = dict(BLOCK.findall(README))["leader"] + dict(SHOWN.findall(README))["terms"] + USE_LEAD
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "epoch 2 given back" in done.stdout


def test_the_supervised_job_comes_before_the_loop_in_the_readme() -> None:
    assert README.index("run_as_leader") < README.index("leader.terms()")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert targets == []


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
