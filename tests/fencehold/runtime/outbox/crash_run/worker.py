"""A worker of the crash run as a process of its own, to be killed and frozen.

    python -m tests.fencehold.runtime.outbox.crash_run.worker URL --file F --name w1 --lease 2 ...

Writes what it does to its own file, one line at a time, each with one os.write, so that a kill -9 loses none:
R (ready), S (start), E (end), F (failed on purpose) with tracking id, token, attempt and time; L (it says it lost an
event) with tracking id and reason; X for other facts that matter.
The signals of AIMED freeze or kill it at the worst moments: between its last check and the statement that records what
it did, or between the statement that claims and the worker's knowing of it. SIGTERM ends it in good order.
"""

import argparse
import asyncio
import os
import random
import signal
import time
from typing import Any

import fencehold
from fencehold.model.errors import FenceholdError
from fencehold.ports.events import Claim
from tests.fencehold.runtime.outbox.crash_run.sabotage import SABOTAGES, port_class

#: Which signal asks for what, at which moment.
AIMED = {
    signal.SIGRTMIN + 1: (signal.SIGSTOP, "before"),
    signal.SIGRTMIN + 2: (signal.SIGSTOP, "after"),
    signal.SIGRTMIN + 3: (signal.SIGKILL, "before"),
    signal.SIGRTMIN + 4: (signal.SIGKILL, "after"),
}
OPEN_AGAIN_S = 0.1
MAX_RETRIES = 50
#: Every one of these is counted; the text of the last kind is kept, because none of it may ever happen.
TOLD = {"worker_store_failed", "worker_heartbeat_failed", "reaper_failed", "event_aborted"}
NEVER = {"internal_error", "worker_died", "callback_failed", "worker_hook_failed"}


class Diary:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def event(self, kind: str, event: Claim) -> None:
        self.write(kind, event.tracking_id, event.token, event.attempt, f"{time.time():.6f}")

    def fact(self, event: str, **fields: Any) -> None:
        if event in NEVER:
            self.write("X", event, " ".join(str(fields).split()))
        elif event == "event_lost":
            self.write("L", fields["tracking_id"], fields["reason"])
        elif event in TOLD:
            self.write("X", event)


class Aim:
    """A signal to itself, kept until the moment it is meant for."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        self._moment = ""

    def take(self, signum: signal.Signals, moment: str) -> None:
        self._signal, self._moment = signum, moment

    def at(self, moment: str) -> None:
        if self._signal is not None and moment == self._moment:
            signum, self._signal = self._signal, None
            os.kill(os.getpid(), signum)


def put_between(url: str, aim: Aim) -> None:
    """The aim's two moments around the round trip that completes and claims."""
    port = port_class(url)
    ships_as = port.turn

    async def turn(self: Any, completed: Any, ask: Any, limit_s: float) -> Any:
        if completed:
            aim.at("before")
        answer = await ships_as(self, completed, ask, limit_s)
        if answer.claims:
            aim.at("after")
        return answer

    port.turn = turn


class Deliberate(Exception):
    """Some handlers fail, so that failures are part of the run."""


async def work(options: argparse.Namespace, diary: Diary, aim: Aim, rng: random.Random) -> None:
    async def handle(event: Claim) -> None:
        diary.event("S", event)
        await asyncio.sleep(rng.uniform(*options.work_ms) / 1000)
        if rng.random() < options.fail_part:
            diary.event("F", event)
            raise Deliberate("one in so many")
        diary.event("E", event)

    loop = asyncio.get_running_loop()
    for number, wanted in AIMED.items():
        loop.add_signal_handler(number, aim.take, *wanted)
    store = fencehold.connect(options.url, facts=diary)
    while True:  # the database may be down just now
        try:
            await store.open()
            break
        except FenceholdError:
            await asyncio.sleep(OPEN_AGAIN_S)
    outbox = store.outbox(lease=options.lease, max_retries=MAX_RETRIES, retry_base=0.1, retry_cap=1)
    worker = outbox.worker(handle, concurrency=options.concurrency, worker_id=options.name)
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    diary.write("R", os.getpid(), f"{time.time():.6f}")
    await worker.run()
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--file", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--work-ms", type=float, nargs=2, default=(0.0, 5.0))
    parser.add_argument("--fail-part", type=float, default=0.0)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    aim = Aim()
    if options.sabotage:
        SABOTAGES[options.sabotage](options.url, options.name)
    put_between(options.url, aim)
    asyncio.run(work(options, Diary(options.file), aim, rng))


if __name__ == "__main__":
    main()
