"""The `fencehold` command as a real process, and every process that a lease of a given name protects."""

import asyncio
import contextlib
import functools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

import fencehold
from fencehold.model.election.rules import Lease
from tests.servers.process import is_dead

EVENT_LIMIT_S = 30.0
RUN = secrets.token_hex(8)  # another test run on this machine has processes under the same lease names
FORWARDED = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH")


class Command:
    """One run of the command; killed with all it started when the test leaves the `with` block."""

    def __init__(
        self,
        url: str | None,
        *arguments: str,
        env: dict[str, str] | None = None,
        stdin: Any = None,
        ignoring: signal.Signals | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FENCEHOLD")}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "fencehold.cli", *arguments],
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, "TEST_RUN": RUN, **({"FENCEHOLD_DSN": url} if url else {}), **(env or {})},
            start_new_session=True,
            preexec_fn=functools.partial(_as_from_a_shell, ignoring),
            pass_fds=pass_fds,
        )

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):  # it went with its parent
                process.kill()
        self.child.kill()
        self.child.communicate()

    def tree(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.child.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def guardian(self) -> psutil.Process:
        return psutil.Process(self.child.pid).children()[0]

    def end(self, limit_s: float = EVENT_LIMIT_S) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, when it has ended by itself."""
        out, err = self.child.communicate(timeout=limit_s)
        return self.child.returncode, out.decode(), err.decode()

    def stderr_line(self) -> str:
        """The next line on stderr."""
        assert self.child.stderr is not None
        return self.child.stderr.readline().decode()


def fencehold_run(url: str | None, *arguments: str, **options: Any) -> tuple[int, str, str]:
    with Command(url, *arguments, **options) as command:
        return command.end()


def parsed(url: str | None, *arguments: str) -> Any:
    """What `-o json` printed, from a command that ended well."""
    code, out, err = fencehold_run(url, *arguments, "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def error_of(url: str | None, *arguments: str, **options: Any) -> tuple[int, dict[str, str]]:
    """Exit code and error object of a command that failed under `-o json`."""
    code, out, err = fencehold_run(url, "-o", "json", *arguments, **options)
    assert out == ""
    return code, json.loads(err)["error"]


def _as_from_a_shell(ignoring: signal.Signals | None) -> None:
    """A test run in the background may have been told to ignore some of these."""
    for name in FORWARDED:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    if ignoring is not None:
        signal.signal(ignoring, signal.SIG_IGN)


# Waiting for what happens


def lease_for(url: str, usual: str, on_mssql: str = "6s") -> str:
    """A server that stands in for SQL Server reads each batch for the first time at length: leases there are longer."""
    return on_mssql if url.startswith("mssql") else usual


def until(is_so: Callable[[], Any], what: str, limit_s: float = EVENT_LIMIT_S) -> float:
    """Seconds until it was so."""
    began_s = time.monotonic()
    while not is_so():
        assert time.monotonic() < began_s + limit_s, f"{what} did not happen within {limit_s} s"
        time.sleep(0.002)
    return time.monotonic() - began_s


def protected_by(name: str) -> list[psutil.Process]:
    """Every live process that carries the name in its environment, wherever it fled to."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            ours = (environment.get("TEST_RUN"), environment.get("FENCEHOLD_LEASE")) == (RUN, name)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def family(name: str, ready: Path) -> list[psutil.Process]:
    """The command, its background child, a grandchild that left the session, and one that lost its parent."""
    until(ready.exists, "the command's start")
    until(lambda: len(protected_by(name)) >= 6, "the family's birth")
    return protected_by(name)


def stubborn(ready: Path) -> Sequence[str]:
    """None of them dies of SIGTERM; all end by themselves after five minutes."""
    fled = "setsid sh -c 'sleep 301; true' & (setsid sleep 303 &)"
    script = f"trap '' TERM; sleep 300 & {fled}; touch $0; sleep 302; true"
    return ("--", "sh", "-c", script, str(ready))


def wait_dead(processes: Sequence[psutil.Process], limit_s: float) -> tuple[float, float]:
    """Seconds until, and the wall clock when, one of them was last SEEN alive: a slow observer accuses nobody."""
    began_s = time.monotonic()
    seen_s, seen_at_s = 0.0, 0.0  # never, so far

    def all_dead() -> bool:
        nonlocal seen_s, seen_at_s
        asked_s, asked_at_s = time.monotonic() - began_s, time.time()
        if all(map(is_dead, processes)):
            return True
        seen_s, seen_at_s = asked_s, asked_at_s
        return False

    until(all_dead, f"the death of {processes}", limit_s)
    return seen_s, seen_at_s


# The store, seen from outside


def prepare(url: str) -> None:
    async def init() -> None:
        async with fencehold.connect(url) as store:
            store.outbox(), store.items("any")
            await store.init()

    asyncio.run(init())


def row(url: str, name: str) -> Lease | None:
    async def read() -> Lease | None:
        async with fencehold.connect(url) as store:
            return await store.leases.read(name)

    return asyncio.run(read())


def hold(url: str, name: str, lease_s: float = 60) -> Lease:
    """Taken by somebody who never renews."""

    async def acquire() -> Lease | None:
        async with fencehold.connect(url) as store:
            return await store.leases.acquire(name, "somebody else", lease_s)

    lease = asyncio.run(acquire())
    assert lease is not None
    return lease


def give_back(url: str, lease: Lease) -> None:
    async def release() -> None:
        async with fencehold.connect(url) as store:
            assert await store.leases.release(lease) is not None

    asyncio.run(release())
