"""Runs the user's own commands (hooks), each once in a run: verify cannot pause or switch over the user's server."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from fencehold.ports.time_limit import TimeLimit
from fencehold.testing.history import boottime_s
from fencehold.verify.journal import Journal

OUTPUT_BYTES_MAX = 4096
#: Runs $1. Its standard input is a pipe from verify, which closes when verify dies, however it dies: then a second
#: process of the group ends the whole group.
GUARDED = """exec 3<&0 </dev/null
{ read -r _ <&3; kill -s KILL 0; } >/dev/null 2>&1 &
exec 3<&-
eval "$1"
"""


@dataclass(frozen=True)
class HookRun:
    """The result of one run of a hook, the user's command. `exit_code` is None when it took too long and was killed."""

    hook: str
    command: str
    began_s: float
    ended_s: float
    exit_code: int | None
    output: str


async def run_hook(hook: str, command: str, limit_s: float, journal: Journal, secrets: Sequence[str] = ()) -> HookRun:
    """Run `command` in the shell and return its result. `secrets` are replaced by `***` in its output.

    The command's whole process group is killed when the command ends, after `limit_s`, and when verify's process dies.
    """
    fault = journal.begin(hook, "", command)
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", GUARDED, "sh", command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    output = bytearray()
    reading = asyncio.create_task(_read(process, output))
    exit_code: int | None = None
    try:
        async with TimeLimit(limit_s):
            exit_code = await process.wait()
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.wait([reading], timeout=1.0)
        reading.cancel()
    outcome = f"killed after {limit_s:g} s" if exit_code is None else f"exit code {exit_code}"
    journal.end(fault, outcome)
    ended_s = fault.ended_s or boottime_s()
    text = hidden(output.decode(errors="replace"), secrets)
    return HookRun(hook, command, fault.began_s, ended_s, exit_code, text)


def passwords(url: str) -> tuple[str, ...]:
    """Return the passwords of this run's database, in every spelling that a command may print."""
    known = {os.environ.get("PGPASSWORD", ""), urlsplit(url).password or ""}
    return tuple(word for word in {*known, *map(unquote, known)} if word)


def hidden(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


async def _read(process: Process, output: bytearray) -> None:
    """Keep the beginning of the output in `output`.

    Read and drop the rest of it, so that the command is not blocked.
    """
    assert process.stdout is not None, "it was started with a pipe"
    while data := await process.stdout.read(OUTPUT_BYTES_MAX):
        output += data[: OUTPUT_BYTES_MAX - len(output)]
