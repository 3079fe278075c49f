"""Runs the contenders as processes, each behind its own fault proxies. However a run ends, no process is left."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from fencehold.model.errors import FenceholdError, redact
from fencehold.testing.history import boottime_s
from fencehold.testing.proxy import FaultProxy
from fencehold.verify.journal import Journal
from fencehold.verify.messages import LINE_BYTES_MAX, Brief
from fencehold.verify.plan import PREFIX, STOP_LIMIT_S, Plan
from fencehold.verify.scratch.place import Scratch

#: The module that a contender runs: it has a `main`. Tests replace it by one with weakened statements.
CONTENDER = ["-m", "fencehold.verify.contender"]
STANDSTILL_LIMIT_S = 2.0
READY_LIMIT_S = 30.0
DEATHS_MAX = 10
ERROR_CHARS = 2000


class Member:
    """One of the planned contenders: it keeps its number and its fault proxies, and gets a new process after a kill."""

    def __init__(self, slot: int, proxies: list[FaultProxy], brief: Brief, journal: Journal) -> None:
        self.slot, self.proxies = slot, proxies
        self.lock = asyncio.Lock()  # one fault at a time
        self.who = ""
        self.is_expected_to_end = False
        self._brief, self._journal = brief, journal
        self._generation = 0
        self._process: Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._stderr = ""

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> bool:
        """Start the process.

        Returns True once it contends; False if that takes too long (its network may be cut) or it dies.
        """
        self._generation += 1
        self.who = f"c{self.slot}-{self._generation}"
        self.is_expected_to_end = False
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *CONTENDER, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C is for the parent process alone, which then ends them
        )  # fmt: skip
        who = self.who
        brief = Brief(**{**self._brief.__dict__, "who": who})
        ready = self._journal.until(lambda said: said.who == who and said.kind in ("ready", "died"), READY_LIMIT_S)
        self._readers = [
            asyncio.create_task(self._listen(self._process, who)),
            asyncio.create_task(self._read_stderr(self._process)),
        ]
        self._write(brief.line())
        first = await ready
        return first is not None and first.kind == "ready"

    async def _listen(self, process: Process, who: str) -> None:
        assert process.stdout is not None, "it was started with a pipe"
        async for line in process.stdout:
            with suppress(ValueError, KeyError):  # a line that a kill cut off
                self._journal.hear_line(who, line)
        await process.wait()
        self._journal.died_s[who] = boottime_s()

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None, "it was started with a pipe"
        while data := await process.stderr.read(LINE_BYTES_MAX):
            self._stderr = (self._stderr + data.decode(errors="replace"))[-ERROR_CHARS:]

    def last_error(self) -> str:
        """Return the last error of a process that ended by itself, without passwords; "no word" if it reported none."""
        died = [said["error"] for said in self._journal.of_kind("died") if said.who == self.who]
        return redact(died[-1] if died else self._stderr.strip().rpartition("\n")[2] or "no word")

    def order(self, do: str, **fields: Any) -> None:
        self._write(json.dumps({"do": do, **fields}).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(data)

    def _send(self, signum: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._process is not None:
                self._process.send_signal(signum)

    async def freeze(self) -> bool:
        """Freeze the process with SIGSTOP.

        Returns True once every thread stands still, False if that takes too long.
        """
        self._send(signal.SIGSTOP)
        until_s = boottime_s() + STANDSTILL_LIMIT_S
        while boottime_s() < until_s:
            if self._process is not None and stands_still(self._process.pid):
                return True
            await asyncio.sleep(0.005)
        return False

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    async def kill(self) -> None:
        self.is_expected_to_end = True
        self._send(signal.SIGKILL)
        await self._ended()

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> bool:
        """End the process by SIGTERM and return True; if it does not end within `limit_s`, kill it and return False."""
        self.is_expected_to_end = True
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)
        try:
            async with asyncio.timeout(limit_s):
                await self._ended()
            return True
        except TimeoutError:
            await self.kill()
            return False

    async def _ended(self) -> None:
        if self._process is not None:
            await self._process.wait()
            await asyncio.gather(*self._readers, return_exceptions=True)


class ContenderProcesses:
    """Keeps the planned number of contenders running: a contender that ends by itself is noted and replaced."""

    def __init__(self, plan: Plan, scratch: Scratch, journal: Journal) -> None:
        self._plan, self._scratch, self._journal = plan, scratch, journal
        self._deaths = 0
        self.members: list[Member] = []

    async def start(self) -> None:
        for slot in range(1, self._plan.contenders + 1):
            proxies = [await FaultProxy(*server).start() for server in self._scratch.servers]
            brief = self._brief([proxy.port for proxy in proxies])
            self.members.append(Member(slot, proxies, brief, self._journal))
        started = await asyncio.gather(*(member.start() for member in self.members))
        if not all(started):
            member = self.members[started.index(False)]
            raise ContenderFailed(f"Contender {member.who} did not start: {member.last_error()}.")

    def _brief(self, ports: list[int]) -> Brief:
        plan, scratch = self._plan, self._scratch
        return Brief(
            url=scratch.url_through(ports), dialect=scratch.dialect, schema=scratch.schema,
            lease_table=scratch.lease_table, outbox=scratch.outbox, who="", lease_s=plan.lease_s,
            write_every_s=plan.write_every_s, lock_name=f"{PREFIX}{plan.mark}" if scratch.has_locks else None,
        )  # fmt: skip

    def of(self, who: str) -> Member | None:
        return next((member for member in self.members if member.who == who and member.is_alive), None)

    async def tend(self) -> None:
        """Replace contenders that ended by themselves. Never returns; raises ContenderFailed after too many of them."""
        while True:
            for member in self.members:
                if not member.is_alive and not member.is_expected_to_end and not member.lock.locked():
                    await self._replace(member)
            await asyncio.sleep(0.1)

    async def _replace(self, member: Member) -> None:
        async with member.lock:
            self._deaths += 1
            self._journal.note(f"contender {member.who} ended by itself: {member.last_error()}")
            if self._deaths > DEATHS_MAX:
                raise ContenderFailed(f"More than {DEATHS_MAX} contenders ended by themselves: {member.last_error()}.")
            await member.start()

    async def close(self, in_order: bool = False) -> None:
        """End all contenders and their proxies.

        The contenders get SIGTERM if `in_order` is true, else they are killed.
        """
        for member in self.members:
            member.is_expected_to_end = True
        ends = (member.stop() if in_order else member.kill() for member in self.members)
        stopped = await asyncio.gather(*ends)
        if in_order and not all(stopped):
            self._journal.note(f"{stopped.count(False)} contenders did not end within {STOP_LIMIT_S:g} s of SIGTERM")
        for member in self.members:
            for proxy in member.proxies:
                await proxy.close()
            member.proxies.clear()


class ContenderFailed(FenceholdError):
    code = "contender_failed"


def stands_still(pid: int) -> bool:
    """Whether all threads of the process are stopped: SIGSTOP returns before they are.

    True also on a system without /proc, where it cannot be checked.
    """
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.parent.parent.is_dir() or not Path("/proc/self").exists():
        return True
    try:
        states = [(one / "stat").read_text().rpartition(")")[2].split()[0] for one in tasks.iterdir()]
    except OSError:
        return False
    return bool(states) and all(state in "Tt" for state in states)
