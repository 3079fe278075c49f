"""A candidate for a lease as a real process, driven line by line on its standard input.

    python -m tests.across_packages.contender URL NAME --holder A --lease 2 ...

It tells what happens as JSON lines: started, leading, lost, wrote, refused, checked, blocked, freed, stopped. Commands:
write V (a fenced write of V), check (look at is_valid, say so, then wait for `go` in a blocked event loop and write),
block (block the event loop until `go`), open V (write V and block inside the open transaction until `go`), step_down,
stop.
"""

import argparse
import asyncio
import json
import sys
import threading
import time
from typing import Any

import fencehold
from fencehold.runtime.core.clock import BootClock

UNFENCED_SQL = {
    "sqlite": "INSERT INTO ledger (holder, epoch, value) VALUES (?, ?, ?)",
    "postgresql": "INSERT INTO ledger (holder, epoch, value) VALUES (%s, %s, %s)",
}
TARGET_SQL = {
    "sqlite": "UPDATE target SET value = ?, epoch = ? WHERE id = 1",
    "postgresql": "UPDATE target SET value = %s, epoch = %s WHERE id = 1",
}
LEDGER = "ledger (place {serial}, holder text NOT NULL, epoch bigint NOT NULL, value text NOT NULL)"
TABLES = {
    "sqlite": LEDGER.format(serial="INTEGER PRIMARY KEY AUTOINCREMENT"),
    "postgresql": LEDGER.format(serial="bigserial PRIMARY KEY"),
}


def tell(event: str, **fields: Any) -> None:
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    sys.stdout.write(json.dumps({"event": event, "at_s": now_s, **fields}) + "\n")
    sys.stdout.flush()


class Contender:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.dialect = options.url.partition(":")[0]
        self.commands: asyncio.Queue[list[str]] = asyncio.Queue()
        self.go = threading.Event()
        self.term: fencehold.Term | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        o = self.options
        async with fencehold.connect(o.url) as store:
            leader = store.leader(
                o.name, lease=o.lease, holder_id=o.holder, acquire_every=o.acquire_every, stall_limit=o.stall_limit
            )
            leader.on_lost(lambda: tell("lost", holder=o.holder))
            async with leader:
                tell("started", holder=o.holder)
                await asyncio.gather(self._lead(leader), self._obey(leader))
        tell("stopped", holder=o.holder)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread of its own, so that `go` is heard while the event loop is blocked."""
        for line in sys.stdin:
            words = line.split()
            if words == ["go"]:
                self.go.set()
            else:
                loop.call_soon_threadsafe(self.commands.put_nowait, words)

    async def _lead(self, leader: fencehold.Leader) -> None:
        async for term in leader.terms():
            async with term:
                self.term = term
                tell("leading", holder=term.holder_id, epoch=term.epoch)
                while self.options.steady:
                    await self._write(term, "steady", "ledger")
                    await asyncio.sleep(0.01)
                await term.ended()
            tell("over", holder=term.holder_id, epoch=term.epoch, because=term.ended_because)

    async def _obey(self, leader: fencehold.Leader) -> None:
        while True:
            words = await self.commands.get()
            match words:
                case ["stop"]:
                    await leader.shutdown()
                    return
                case ["step_down"]:
                    await leader.step_down()
                case ["write", value]:
                    await self._write_command(value)
                case ["target", value]:
                    asyncio.ensure_future(self._write_command(value, "target"))  # noqa: RUF006 - ends with the test
                case ["block"]:
                    self._block("blocked")
                    tell("freed", is_valid=bool(self.term and self.term.is_valid), is_leader=leader.is_leader)
                case ["open", value]:
                    await self._write_command(value, pause=True)
                case ["check", value]:
                    tell("checked", is_valid=bool(self.term and self.term.is_valid))
                    self._block("blocked")
                    await self._write_command(value)

    def _block(self, event: str) -> None:
        self.go.clear()
        tell(event)
        self.go.wait()

    async def _write_command(self, value: str, table: str = "ledger", pause: bool = False) -> None:
        if self.term is None:
            tell("refused", error="never led")
            return
        try:
            await self._write(self.term, value, table, pause)
        except (fencehold.FenceholdError, asyncio.CancelledError) as error:
            tell("refused", value=value, error=type(error).__name__, epoch=self.term.epoch)
        except Exception as error:
            tell("refused", value=value, error=type(error).__name__, epoch=self.term.epoch)
        else:
            tell("wrote", value=value, epoch=self.term.epoch)

    async def _write(self, term: fencehold.Term, value: str, table: str, pause: bool = False) -> None:
        fence = self.options.fence
        if fence == "none":
            await self._write_without_fence(term, value, table)
            return
        async with term.transaction() as tx:
            await tx.execute(*self._statement(term, value, table))
            if pause:
                self._block("opened")

    def _statement(self, term: fencehold.Term, value: str, table: str) -> tuple[str, list[Any]]:
        if table == "target":
            return TARGET_SQL[self.dialect], [value, term.epoch]
        return UNFENCED_SQL[self.dialect], [term.holder_id, term.epoch, value]

    async def _write_without_fence(self, term: fencehold.Term, value: str, table: str) -> None:
        """The control: what a program does that checks and then writes."""
        sql, params = self._statement(term, value, table)
        if self.dialect == "sqlite":
            import sqlite3

            with sqlite3.connect(self.options.url.removeprefix("sqlite:///"), timeout=10) as connection:
                connection.execute(sql, params)
        else:
            import psycopg

            async with await psycopg.AsyncConnection.connect(self.options.url) as pg:
                await pg.execute(sql, params)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--holder", required=True)
    parser.add_argument("--lease", default="2s")
    parser.add_argument("--acquire-every", default="200ms")
    parser.add_argument("--stall-limit", default=None)
    parser.add_argument("--fence", default="transaction", choices=["transaction", "none"])
    parser.add_argument("--steady", action="store_true", help="write all the time while leading")
    parser.add_argument("--stopped-clock", action="store_true", help="the local clock stands still once `go` is said")
    options = parser.parse_args()
    contender = Contender(options)
    if options.stopped_clock:
        stop_clock(contender)
    asyncio.run(contender.run())


def stop_clock(contender: Contender) -> None:
    """From `check` on the local clock stands still, as if the machine had slept: only the fence can refuse then."""
    real = BootClock.now_s
    frozen: list[float] = []

    def now_s(self: BootClock) -> float:
        return frozen[0] if frozen else real(self)

    block = contender._block

    def stop_and_block(event: str) -> None:
        frozen.append(real(BootClock()))
        block(event)

    contender._block = stop_and_block  # type: ignore[method-assign]
    BootClock.now_s = now_s  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
