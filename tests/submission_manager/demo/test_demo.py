"""`submission-manager demo` tells the truth and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from submission_manager.cli.demo import _lines
from submission_manager.demo.evidence import Verdict
from submission_manager.demo.load import http_client
from submission_manager.demo.stage import RoundRobin
from submission_manager.demo.story import Failover
from tests.across_packages.processes import execute
from tests.fencehold.cli.cli_process import until
from tests.servers.process import is_dead

#: It puts HAProxy in front where there is one.
COMMAND = [sys.executable, "-m", "submission_manager.cli", "demo"]
SCHEMAS = "SELECT count(*) FROM information_schema.schemata WHERE schema_name LIKE 'submission_manager_demo_%'"


def folders(place: Path) -> list[Path]:
    return list(place.glob("submission-manager-demo-*"))


@pytest.mark.haproxy
@pytest.mark.limit(120)
def test_the_books_agree_and_nothing_is_left(tmp_path: Path) -> None:
    answer = subprocess.run(
        [*COMMAND, "--seconds", "10", "-o", "json"], env={**os.environ, "TMPDIR": str(tmp_path), "SM_PORT": "1"},
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    told = json.loads(answer.stdout)
    zeros = [name for name in told if name.endswith(("_lost", "_epoch", "_start", "_repeated", "_too_often"))]
    assert len(zeros) == 7
    assert {told[name] for name in zeros} == {0}
    assert told["intents_accepted"] == sum(told["attempts_per_intent"].values()) > 0
    assert [one["after"] for one in told["failovers"]] == ["kill -9", "freeze", "clean stop"]
    assert folders(tmp_path) == []


@pytest.mark.parametrize("name", list(Verdict.__dataclass_fields__)[1:8])
def test_one_fault_of_any_kind_is_no(name: str) -> None:
    values: dict[str, Any] = dict.fromkeys(Verdict.__dataclass_fields__, 0)
    good = Verdict(**{**values, "intents_accepted": 5, "attempts_per_intent": {1: 5}})
    bad = Verdict(**{**values, "intents_accepted": 5, "attempts_per_intent": {1: 5}, name: 1})
    assert (good.is_good, bad.is_good, Verdict(**values).is_good) == (True, False, False)
    ending = [re.sub(r"\s{2,}", " ", line) for line in _lines(bad, [Failover("kill -9", 3.14)])]
    assert (ending[0], ending[-1]) == ("intents accepted 5", "failover seconds kill -9 3.1")
    assert sum(line.endswith(" 1") for line in ending[1:5]) == 1


def interrupted(stream: IO[str], child: subprocess.Popen[Any], signum: signal.Signals) -> None:
    """Once it leads, with one of its instances frozen."""
    for line in stream:
        if "leads with epoch 1" in line:
            break
    tree = psutil.Process(child.pid).children(recursive=True)
    instances = [one for one in tree if "serve" in one.cmdline()]
    assert len(instances) == 3
    instances[0].suspend()
    child.send_signal(signum)
    until(lambda: child.poll() is not None and all(map(is_dead, tree)), "the end of every process")


@pytest.mark.haproxy
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_interrupted_it_leaves_no_process_and_no_file(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        interrupted(child.stdout, child, signum)
    assert child.returncode == code
    assert signum is signal.SIGKILL or folders(tmp_path) == []


@pytest.mark.haproxy
async def test_ctrl_c_on_a_terminal_leaves_no_schema_in_the_database_it_was_given(
    tmp_path: Path, postgres_url: str
) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"}
    with subprocess.Popen(
        [*COMMAND, "--database", postgres_url], stdout=theirs, stderr=theirs, env=environment
    ) as child:
        os.close(theirs)
        with open(ours, errors="replace") as screen:
            interrupted(screen, child, signal.SIGINT)
    assert child.returncode == 130
    assert await execute(postgres_url, SCHEMAS) == [(0,)]
    assert folders(tmp_path) == []


@pytest.mark.parametrize(
    "arguments", [["--seconds", "1"], ["--database", "sqlite:///x.db"], ["--database", "nonsense"]]
)
def test_what_cannot_be_shown_is_refused(arguments: list[str]) -> None:
    answer = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert (answer.returncode, answer.stdout) == (78, "")


async def test_the_built_in_front_takes_turns_and_passes_over_the_dead() -> None:
    async with Answering("a") as a, Answering("b") as b:
        front = RoundRobin("127.0.0.1", [a.port, b.port])
        port = await front.start()
        try:
            assert {await said(port) for _ in range(4)} == {b"a", b"b"}
            await a.close()
            assert [await said(port) for _ in range(4)] == [b"b"] * 4
        finally:
            await front.close()


async def said(port: int) -> bytes:
    async with http_client(f"http://127.0.0.1:{port}") as client:
        return (await client.get("/")).content


class Answering:
    """A server that says one word to everybody."""

    def __init__(self, word: str) -> None:
        self._answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(word)}\r\n\r\n{word}".encode()
        self.port = 0

    async def __aenter__(self) -> Answering:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()
        writer.close()

    async def close(self) -> None:
        self._server.close()

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
