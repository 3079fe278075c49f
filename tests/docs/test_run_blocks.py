"""Every block that can be run is run as the pages show it, in a fresh folder, together with the parts below it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.docs import given, programs
from tests.docs.blocks import Block, all_blocks, blocks, chains
from tests.docs.programs import Ended, Step
from tests.tidy.tree import ROOT

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CHAINS = [chain for chain in chains(all_blocks()) if not chain[0].marker.by]


def limit_s(chain: list[Block]) -> int:
    return max(block.marker.limit_s for block in chain)


def param(chain: list[Block]) -> Any:
    markers = [block.marker for block in chain]
    marks = [pytest.mark.limit(limit_s(chain)), pytest.mark.needs("bash")]
    marks += [pytest.mark.needs(*one.needs) for one in markers if one.needs]
    marks += [pytest.mark.long] if any(one.long for one in markers) else []
    marks += [getattr(pytest.mark, server) for one in markers for server in one.on]
    return pytest.param(chain, id=str(chain[0]), marks=marks)


@pytest.mark.parametrize("chain", [param(chain) for chain in CHAINS])
def test_the_blocks_run_as_the_page_shows_them(
    chain: list[Block], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    addresses = {kind: address(kind, request) for block in chain for kind in block.marker.on}
    execute(chain, tmp_path, addresses)


def execute(chain: list[Block], folder: Path, addresses: dict[str, str]) -> None:
    """Fails unless each step did what its blocks and markers say."""
    url = next(iter(addresses.values()), f"sqlite:///{folder}/app.db")
    if any(block.marker.in_clone for block in chain):
        programs.copy_the_tree(folder)
    for step in programs.steps(chain):
        variables = prepared(step, url)
        judge(step, programs.ran(step.command(folder, addresses), folder, variables, step.stops, limit_s(chain) - 10))


def address(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "cosmos":
        return str(request.getfixturevalue("cosmos_server").url())
    return str(request.getfixturevalue("postgres_url"))


def prepared(step: Step, url: str) -> dict[str, str]:
    """The environment that the step is given. Where a shell is given the database, that has our tables."""
    shells = {name: url for block in step.blocks for name in block.marker.given if name.isupper()}
    if "FENCEHOLD_DSN" in shells:
        asyncio.run(given.make_tables(url, [one for block in step.blocks for one in UUID.findall(block.text)]))
    ours = {"DATABASE": url, "PYTHONPATH": str(ROOT)} if step.is_fragment else {}
    return {**programs.environment(), **shells, **ours}


def judge(step: Step, ended: Ended) -> None:
    """It ended well and did not complain; Ctrl-C in a program of Python is a KeyboardInterrupt."""
    interrupted = step.in_python and step.stops
    assert ended.code in ({130, -signal.SIGINT} if interrupted else {step.exit_code}), ended.said
    assert not step.in_python or not ended.err or (interrupted and not step.is_fragment), ended.err
    for text in [*step.stops, *step.prints]:
        assert text in ended.said, ended.said
    for block in step.outputs:
        assert agree(block.text, ended.out), f"{block} is not what was printed: {ended.out}"


def agree(shown: str, printed: str) -> bool:
    """`...` on a page stands for anything, in one line or several."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("..."))), printed, re.DOTALL) is not None


PAGE = """
<!-- run: {options} -->
```{language}
{code}
```

<!-- output -->
```text
7
```
"""


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    ("language", "options", "code", "is_right"),
    [
        ("sh", "exits 0", "echo 7", True),
        ("sh", "exits 0", "false; echo 7", False),
        ("sh", "exits 0", "false | echo 7", False),
        ("sh", "exits 1", "echo 7", False),
        ("sh", 'prints "8"', "echo 7", False),
        ("sh", 'Ctrl-C after "8"', "echo 7", False),
        ("sh", 'Ctrl-C after "7"', "trap 'exit 0' INT; echo 7; sleep 40", True),
        ("python", "exits 0", "print(7)", True),
        ("python", "exits 0", "print(8)", False),
        ("python", "exits 0", "import sys; print(7); print('complains', file=sys.stderr)", False),
        ("python", "exits 0", "import warnings; print(7); warnings.warn('x')", False),
        ("python", "exits 0", "await asyncio.sleep(0); print(7)", True),
        ("python", "given url", "print(7 if url.startswith('sqlite:') else 8)", True),
        ("python", "given store", "await store.leader('x').start(); print(7); 1 / 0", False),
        ("python", 'Ctrl-C after "7"', "print(7); await asyncio.sleep(40)", True),
        ("python", "exits 0", "# app.py, then: python -c 'import app'\nprint(7)", True),
    ],
)
def test_a_block_that_does_not_do_what_the_page_says_is_found(
    language: str, options: str, code: str, is_right: bool, tmp_path: Path
) -> None:
    [chain] = chains(list(blocks(PAGE.format(language=language, options=options, code=code), "page.md")))
    with contextlib.nullcontext() if is_right else pytest.raises(AssertionError):
        execute(chain, tmp_path, {})


def test_an_output_is_compared_as_a_whole() -> None:
    assert agree("first 7\n...changed 2\n", "first 7\nmore\nchanged 2\n")
    assert not agree("first 7\n", "first 7\nchanged 2\n")
