"""The program of docs/leader.md beside a web application: it serves, it leads, and it ends when it cannot."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fencehold
import fencehold.sync
from tests.docs.blocks import the_block
from tests.fencehold.cli.cli_process import until

PROGRAM = the_block("docs/leader.md", "FastAPI").text
RUNNING = re.compile(r"running on (http://\S+)")


@contextmanager
def served(folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "app.py").write_text(PROGRAM, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FENCEHOLD")}
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env={**kept, **variables}, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def address(child: subprocess.Popen[str]) -> str:
    """When it serves."""
    assert child.stderr is not None
    return next(found[1] for line in child.stderr if (found := RUNNING.search(line)))


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_can_be_stopped_while_the_database_is_away(
    tmp_path: Path, closed_port: int, stop: signal.Signals
) -> None:
    with served(tmp_path, FENCEHOLD_DSN=f"postgresql://127.0.0.1:{closed_port}/app") as child:
        assert status(address(child)) == 404  # it has no routes, and says so
        child.send_signal(stop)
        _, said = child.communicate(timeout=20)
    assert "Application shutdown complete" in said


def is_led(url: str) -> bool:
    async def look() -> bool:
        async with fencehold.connect(url) as store:
            row = await store.leases.read("nightly")
            return row is not None and row.is_live

    try:
        return asyncio.run(look())
    except fencehold.ConfigurationError:
        return False  # not made yet


def test_it_leads_in_an_empty_folder_and_gives_the_lease_back_at_its_end(tmp_path: Path) -> None:
    with served(tmp_path) as child:
        address(child)
        url = f"sqlite:///{tmp_path}/app.db"
        until(lambda: is_led(url), "its term")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=20)
    assert not is_led(url)


def test_it_ends_when_it_can_never_lead(tmp_path: Path) -> None:
    with served(tmp_path, FENCEHOLD_DSN="sqlite:///missing/app.db") as child:
        _, said = child.communicate(timeout=20)
    assert "this process can no longer lead" in said
    assert "[bad_url]" in said


def test_the_page_says_how_a_program_without_an_event_loop_opens_and_closes_its_store_where_no_with_fits(
    tmp_path: Path,
) -> None:
    block = the_block("docs/leader.md", ".open()")
    assert "WSGI programs" in block.before.rpartition("\n## Without an event loop")[2]
    names: dict[str, Any] = {"fencehold": fencehold, "url": f"sqlite:///{tmp_path}/app.db"}
    exec(block.text, names)
    assert not names["store"]._store.is_open
