"""A worker as a real process, to be frozen, killed, or to kill itself.

    python -m tests.fencehold.runtime.outbox.laborer URL KIND --id A --lease 1s

It tells what happens as JSON lines: `began` for every event its handler gets, `handled` when that returns, and the
facts named in TOLD. KIND says what the handler does: wait (until a line arrives on standard input), block (the event
loop, for --seconds), exit and kill (this process), poison (kill this process if the event's type is `killer`, else take
--seconds). It ends by itself after ten minutes.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import fencehold

LIFE_S = 600
TOLD = ("worker_started", "worker_stopped", "event_lost", "event_aborted", "events_completed", "event_failed")


class Facts:
    def fact(self, event: str, **fields: Any) -> None:
        if event in TOLD:
            tell(event, **{key: value for key, value in fields.items() if isinstance(value, str | int)})


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class Laborer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.go = asyncio.Event()

    async def run(self) -> None:
        o = self.options
        loop = asyncio.get_running_loop()
        async with fencehold.connect(o.url, facts=Facts()) as store:
            outbox = store.outbox(lease=o.lease)
            worker = outbox.worker(
                self.handle, worker_id=o.id, concurrency=o.concurrency, poll_every="50ms",
                max_processing=o.max_processing,
            )  # fmt: skip
            threading.Thread(target=self._read, args=(loop, worker), daemon=True).start()
            await worker.run()

    def _read(self, loop: asyncio.AbstractEventLoop, worker: fencehold.Worker) -> None:
        for line in sys.stdin:
            if line.strip() == "stop":
                worker.stop()
            else:
                loop.call_soon_threadsafe(self.go.set)

    async def handle(self, event: fencehold.Claim) -> None:
        tell("began", id=event.id, attempt=event.attempt, token=event.token)
        match self.options.kind:
            case "wait":
                await self.go.wait()
            case "block":
                time.sleep(self.options.seconds)
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "poison":
                if event.event_type == "killer":
                    os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.sleep(self.options.seconds)
        tell("handled", id=event.id)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("kind", choices=["wait", "block", "exit", "kill", "poison"])
    parser.add_argument("--id", required=True)
    parser.add_argument("--lease", default="1s")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--max-processing", default="1m")
    signal.alarm(LIFE_S)
    asyncio.run(Laborer(parser.parse_args()).run())


if __name__ == "__main__":
    main()
