"""One contender of `fencehold verify`: a process that wants each lease, event and item, and reports what it sees.

The first line of stdin is its brief (its settings), the next lines are orders of the parent process; it writes its
reports to stdout as lines of JSON. SIGTERM ends it in order. It is killed when its parent process ends, even while it
is frozen.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import fencehold
from fencehold.connect import backend_for
from fencehold.ports.backend import events_of, items_of
from fencehold.verify.leading import Leading, Locking
from fencehold.verify.messages import Brief, Orders, Windows, tell
from fencehold.verify.plan import ITEM_KIND
from fencehold.verify.roles import Claiming, Holding
from fencehold.verify.writer import RunStatements, Writer, side_of

PR_SET_PDEATHSIG = 1
OPEN_LIMIT_S = 10.0
LATE_LEASES = 8  # the limit of a write with an old key, in leases
STAND_LEASES = 6


class ShiftedClock:
    """Replaces Python's wall clock (`time.time`) by one that can be set forward or back, in this process alone.

    Code that uses other clocks is not affected.
    """

    def __init__(self) -> None:
        self._offset_s = 0.0
        self._time, self._time_ns = time.time, time.time_ns
        time.time = lambda: self._time() + self._offset_s
        time.time_ns = lambda: self._time_ns() + int(self._offset_s * 1e9)

    def step(self, order: dict[str, Any]) -> None:
        self._offset_s = float(order["offset_s"])
        tell("clock", offset_s=order["offset_s"], wall_s=time.time())


class Contender:
    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self._backend = backend_for(brief.url, brief.lease_table)()
        side = side_of(brief.dialect, brief.url)
        statements = RunStatements(brief.dialect, brief.schema)
        self._writer = Writer(self._backend, statements, side, LATE_LEASES * brief.lease_s)
        windows = Windows(STAND_LEASES * brief.lease_s)
        self._leading = Leading(brief, self._backend, self._writer, windows)
        self._claiming = Claiming(brief, windows, events_of(self._backend, brief.outbox))
        self._holding = Holding(brief, windows, items_of(self._backend, ITEM_KIND))
        self._listeners = {
            "go": windows.go, "leader": self._leading.hear, self._claiming.name: self._claiming.hear,
            self._holding.name: self._holding.hear, "calm": self._claiming.calm, "clock": ShiftedClock().step,
        }  # fmt: skip

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(0, Orders(self._listeners).hear)
        work = asyncio.create_task(self._contend())
        loop.add_signal_handler(signal.SIGTERM, work.cancel)
        with suppress(asyncio.CancelledError):
            await work

    async def _contend(self) -> None:
        await self._open()
        store = fencehold.connect(self._brief.url, table=self._brief.lease_table, facts=self._leading)
        try:
            async with store, asyncio.TaskGroup() as tasks:
                tell("ready", pid=os.getpid())
                for role in (self._leading, self._claiming, self._holding):
                    tasks.create_task(role.run(store))
                if self._brief.lock_name is not None:
                    tasks.create_task(Locking(self._brief, self._writer).run())
        finally:
            for close in (self._claiming.close, self._holding.close, self._backend.fences.close, self._backend.close):
                await close()

    async def _open(self) -> None:
        """Open the backend. Retry until that works: a fault may have cut the network."""
        while True:
            try:
                await self._backend.open(OPEN_LIMIT_S)
                return
            except fencehold.Unavailable:
                await asyncio.sleep(self._brief.lease_s / 5)


def die_with_parent() -> None:
    """Let the kernel kill this process with SIGKILL when its parent process ends.

    Only on Linux; elsewhere it does nothing.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    line = b""
    while not line.endswith(b"\n"):  # byte by byte: the bytes after this line are orders, which are read later
        byte = os.read(0, 1)
        if not byte:
            os._exit(0)
        line += byte
    brief = Brief(**json.loads(line))
    try:
        asyncio.run(Contender(brief).run())
    except BaseException as error:  # noqa: BLE001 - report every error to the parent process
        tell("died", error=_words(error))
        os._exit(1)
    tell("left")
    os._exit(0)  # at once, even if threads still wait for a database that does not answer


def _words(error: BaseException) -> str:
    inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    return _words(inner) if isinstance(inner, BaseExceptionGroup) else f"{type(inner).__name__}: {inner}"


if __name__ == "__main__":
    main()
