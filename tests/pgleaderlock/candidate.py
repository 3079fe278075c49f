"""A candidate for a lock as a real process, driven line by line on its standard input.

    python -m tests.pgleaderlock.candidate DSN --name A --health 0.4 --retry 0.2 ...

It tells as JSON lines, with CLOCK_BOOTTIME: started, acquire_failed, acquired, released, lost, error, stopped;
`leads`, at the end of the first look that found is_leader True; `follows`, with `last_s`, the beginning of the last
look that found it True; looked. Commands: look, step_down, write (one fenced write with the last term), stop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from typing import Any

import fencehold
from fencehold.runtime.lock.session_lock import LockTerm, SessionLock
from pgleaderlock import FixedInterval, LeaderLock

LOOK_EVERY_S = 0.002
WRITE_SQL = "INSERT INTO counted (holder, epoch) VALUES (%s, %s)"


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "at_s": now_s(), **fields}) + "\n")
    sys.stdout.flush()


class Candidate:
    """Any leader lock; `write_sql` takes who writes and the epoch."""

    def __init__(self, lock: SessionLock[Any], options: argparse.Namespace, write_sql: str) -> None:
        self.lock = lock
        self.options = options
        self.write_sql = write_sql
        self.commands: asyncio.Queue[str] = asyncio.Queue()
        self.term: LockTerm | None = None
        lock.on_acquired(lambda: tell("acquired", epoch=lock.term.epoch if lock.term else None))
        lock.on_acquire_failed(lambda: tell("acquire_failed"))
        lock.on_released(lambda: tell("released"))
        lock.on_lost(lambda: tell("lost"))
        lock.on_error(lambda error: tell("error", error=str(error)))
        lock.on_stopped(lambda: tell("stopped"))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        threading.Thread(target=self._look, daemon=True).start()
        async with self.lock:
            tell("started")
            steady = asyncio.create_task(self._write_steadily())
            await self._obey()
            steady.cancel()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self.commands.put_nowait, line.strip())

    def _look(self) -> None:
        led, last_s = False, 0.0
        while True:
            before_s = now_s()
            leads = self.lock.is_leader
            if leads and not led:
                tell("leads")
            elif led and not leads:
                tell("follows", last_s=last_s)
            if leads:
                last_s = before_s
            led = leads
            time.sleep(LOOK_EVERY_S)

    async def _obey(self) -> None:
        while True:
            match await self.commands.get():
                case "stop":
                    return
                case "look":
                    tell("looked", is_leader=self.lock.is_leader)
                case "step_down":
                    await self.lock.step_down()
                case "write":
                    await self._write()

    async def _write_steadily(self) -> None:
        while self.options.steady:
            if term := self.lock.term:
                await self._write(term)
            await asyncio.sleep(0.01)

    async def _write(self, term: LockTerm | None = None) -> None:
        self.term = term = term or self.term
        assert term is not None, "only one who led can write"
        try:
            async with term.transaction() as tx:
                await tx.execute(self.write_sql, [self.options.name, term.epoch])
        except fencehold.FenceholdError as error:
            tell("refused", error=type(error).__name__, epoch=term.epoch)
        else:
            tell("wrote", epoch=term.epoch)


def options_of(*own: tuple[str, Any]) -> argparse.Namespace:
    """`own`: what names the lock, each with its default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("--name", required=True)
    for option, default in own:
        parser.add_argument(option, type=type(default), default=default)
    parser.add_argument("--health", type=float, default=0.4)
    parser.add_argument("--retry", type=float, default=0.2)
    parser.add_argument("--fencing", default=None)
    parser.add_argument("--steady", action="store_true", help="count, fenced, all the time while leading")
    return parser.parse_args()


async def main() -> None:
    options = options_of(("--key1", 1), ("--key2", 100))
    lock = LeaderLock(
        options.dsn, options.key1, options.key2, retry_strategy=FixedInterval(options.retry),
        health_interval_s=options.health, fencing_name=options.fencing,
    )  # fmt: skip
    await Candidate(lock, options, WRITE_SQL).run()


if __name__ == "__main__":
    asyncio.run(main())
