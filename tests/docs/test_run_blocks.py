"""Every block that can be run is run as the pages show it, in a fresh folder, together with the parts below it."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.docs import given, programs
from tests.docs.blocks import Block, all_blocks, chains
from tests.docs.programs import Ended, Step
from tests.tidy.tree import ROOT

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CHAINS = [chain for chain in chains(all_blocks()) if not chain[0].options.by]


def param(chain: list[Block]) -> Any:
    options = [block.options for block in chain]
    marks = [pytest.mark.limit(max(option.limit_s for option in options)), pytest.mark.needs("bash")]
    marks += [pytest.mark.needs(*option.needs) for option in options if option.needs]
    marks += [pytest.mark.long] if any(option.long for option in options) else []
    return pytest.param(chain, id=str(chain[0]), marks=marks)


@pytest.mark.parametrize("chain", [param(chain) for chain in CHAINS])
def test_the_blocks_run_as_the_page_shows_them(
    chain: list[Block], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    addresses = {kind: address(kind, request) for block in chain for kind in block.options.on}
    url = next(iter(addresses.values()), f"sqlite:///{tmp_path}/app.db")
    if any(block.options.in_clone for block in chain):
        programs.copy_the_tree(tmp_path)
    for step in programs.steps(chain):
        variables = prepared(step, url)
        ended = programs.ran(step.command(tmp_path, addresses), tmp_path, variables, step.stops)
        judge(step, ended)


def address(kind: str, request: pytest.FixtureRequest) -> str:
    if kind == "cosmos":
        return str(request.getfixturevalue("cosmos_server").url())
    return str(request.getfixturevalue("postgres_url"))


def prepared(step: Step, url: str) -> dict[str, str]:
    """The environment that the step is given. Where a shell is given the database, that has our tables."""
    shells = {name: url for block in step.blocks for name in block.options.given if name.isupper()}
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


def test_an_output_that_differs_is_found() -> None:
    assert agree("first 7\n...changed 2\n", "first 7\nmore\nchanged 2\n")
    assert not agree("first 7\n", "first 8\n")
    assert not agree("first 7\n", "first 7\nchanged 2\n")
