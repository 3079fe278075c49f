"""The blocks of a chain as what a newcomer makes of them: a program, or lines in a shell; and a run of these."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.docs.blocks import Block, awaits
from tests.docs.given import GIVEN
from tests.fencehold.cli.cli_process import until
from tests.servers.process import free_port
from tests.servers.programs import require
from tests.tidy.tree import NOT_OURS, ROOT

SAVED = re.compile(r"# (?P<file>\S+\.py), then: (?P<command>.+)\n")
ADDRESS = re.compile(r"\b(postgres|cosmos)(?:ql)?://[^\s\"'`]+")
PORT = re.compile(r"(?:port |127\.0\.0\.1:)(\d{4,5})\b")
IMPORTED = "asyncio, contextlib, os, signal, sqlite3, threading, typing, fencehold, fencehold.sync"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return f"{self.out}{self.err}"


def copy_the_tree(folder: Path) -> None:
    """As a clone has it; what a block writes there does not reach ours."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_OURS, ".*"), dirs_exist_ok=True)


def environment() -> dict[str, str]:
    """Of a shell that finds the commands, with nothing in it that would lead them elsewhere."""
    ours = ("FENCEHOLD", "SM_", "PG", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONUNBUFFERED": "1", "SM_PORT": str(free_port())}


# What is executed


@dataclass(frozen=True)
class Step:
    """Blocks in one language that follow each other: one program, or one shell; and what it prints, where shown."""

    blocks: list[Block]
    outputs: list[Block]

    @property
    def language(self) -> str:
        return self.blocks[0].language

    @property
    def stops(self) -> list[str]:
        return [text for block in self.blocks for text in block.marker.stops]

    @property
    def saved(self) -> re.Match[str] | None:
        """`# app.py, then: a command` in its first line: it is saved under that name, and the command is run."""
        return SAVED.match(self.blocks[0].text)

    @property
    def in_python(self) -> bool:
        return self.language == "python" and not self.saved

    @property
    def prints(self) -> list[str]:
        return [text for block in self.blocks for text in block.marker.prints]

    @property
    def exit_code(self) -> int:
        return self.blocks[-1].marker.exit_code

    @property
    def name(self) -> str:
        return re.sub(r"\W", "_", str(self.blocks[0]))

    @property
    def is_fragment(self) -> bool:
        return any(block.is_fragment for block in self.blocks)

    @property
    def given(self) -> list[str]:
        """Names and what is given for them: each once."""
        return list(dict.fromkeys(name for block in self.blocks for name in block.variables))

    def command(self, folder: Path, addresses: dict[str, str]) -> list[str | Path]:
        """Writes what it needs into the folder."""
        if self.language == "sh":
            return in_bash(with_addresses(with_free_ports("".join(block.text for block in self.blocks)), addresses))
        text = with_addresses(program(self.blocks), addresses)
        if saved := self.saved:
            (folder / saved["file"]).write_text(text, "utf-8")
            return in_bash(saved["command"])
        file = folder / f"{self.name}.py"
        file.write_text(text, "utf-8")
        given = ["-m", "tests.docs.given"] if self.is_fragment else []
        return [sys.executable, "-W", "error", *given, file.name, *self.given]


def steps(chain: Iterable[Block]) -> list[Step]:
    found: list[Step] = []
    for block in chain:
        if block.marker.kind == "output":
            found[-1].outputs.append(block)
        elif found and found[-1].language == block.language and not found[-1].outputs:
            found[-1].blocks.append(block)
        else:
            found.append(Step([block], []))
    return found


def in_bash(text: str) -> list[str | Path]:
    """Ended by the first command that fails."""
    return [require("bash"), "-e", "-o", "pipefail", "-c", text]


def program(blocks: list[Block]) -> str:
    """Each line has the number that it has on the page: so have those of tracebacks and of type checkers."""
    fragment = any(block.is_fragment for block in blocks)
    lines = header(blocks) if fragment else []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines))
        lines += [f"    {line}" if fragment and line else line for line in block.text.splitlines()]
    return "\n".join(lines) + "\n"


def header(blocks: list[Block]) -> list[str]:
    """A fragment is the body of a function that takes what is given."""
    given = {name.split()[-1]: GIVEN[name][0] for block in blocks for name in block.variables}
    modules = {kind.partition("[")[0].rpartition(".")[0] for kind in given.values()} - {"", "fencehold"}
    waits = any(awaits(block.text) for block in blocks)
    arguments = ", ".join(f"{name}: {kind}" for name, kind in given.items())
    return [
        f"import {', '.join([IMPORTED, *sorted(modules)])}",
        f"{'async ' if waits else ''}def block({arguments}) -> None:",
    ]


def with_addresses(text: str, addresses: dict[str, str]) -> str:
    """Every address of a kind of database of which there is a real one is replaced by that one's."""
    return ADDRESS.sub(lambda found: addresses.get(found[1], found[0]), text)


def with_free_ports(text: str) -> str:
    for port in set(PORT.findall(text)):
        text = text.replace(port, str(free_port()))
    return text


# How it is executed


def ran(
    command: Sequence[str | Path],
    folder: Path,
    variables: dict[str, str],
    stops: Iterable[str] = (),
    limit_s: float = 50.0,
) -> Ended:
    """Ctrl-C is typed when it has printed each of `stops`. Nothing that it started outlives it."""
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
        child = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )

        def printed(text: str) -> bool:
            return child.poll() is not None or text in read(out) + read(err)

        try:
            for text in stops:
                until(functools.partial(printed, text), text, limit_s)
                send(signal.SIGINT, child)
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end within {limit_s} s: {read(out)}{read(err)}")
        finally:
            send(signal.SIGKILL, child)
            child.wait()
        return Ended(child.returncode, read(out), read(err))


def send(signum: signal.Signals, shell: subprocess.Popen[bytes]) -> None:
    """To it and to all that it started in its process group, as a terminal does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signum)


def read(file: IO[bytes]) -> str:
    """From its beginning; where its writer stands is not changed."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
