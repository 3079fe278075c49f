"""One LeaderLock as a real process: tells `leading` when it leads, and steps down when told to."""

from __future__ import annotations

import asyncio
import sys

from bench.telling import now_s, tell
from pgleaderlock import FixedInterval, LeaderLock


async def main(dsn: str) -> None:
    lock = LeaderLock(dsn, 7, 7, retry_strategy=FixedInterval(3600.0))  # only a notification can be this quick
    async with lock:
        tell("ready")
        while True:
            await lock.wait_for_leadership()
            tell("leading", at_s=now_s())
            if not await asyncio.to_thread(sys.stdin.readline):
                return
            tell("stepping_down", at_s=now_s())
            await lock.step_down()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
