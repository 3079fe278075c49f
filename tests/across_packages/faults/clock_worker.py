"""A process that works when told to, on a line of its standard input, and answers with what its wall clock says."""

import asyncio
import datetime as dt
import json
import signal
import sys

import fencehold
from tests.across_packages.faults.uses import Use


async def main(url: str, capability: str) -> None:
    signal.alarm(120)  # it ends by itself, whatever becomes of the test
    loop = asyncio.get_running_loop()
    async with fencehold.connect(url) as store, Use(store, capability) as use:
        await use.work()
        say("ready")
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await (use.work() if line.strip() == "work" else use.recovers())
            say("worked")


def say(event: str) -> None:
    print(json.dumps({"event": event, "wall": dt.datetime.now(dt.UTC).isoformat()}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
