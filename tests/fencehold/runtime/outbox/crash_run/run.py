"""Workers of one outbox are killed, frozen and left without their database; then a referee looks at what is left.

    python -m tests.fencehold.runtime.outbox.crash_run.run --seconds 60 --events 20000 --workers 4 --seed 1
    python -m tests.fencehold.runtime.outbox.crash_run.run --database sqlite
    python -m tests.fencehold.runtime.outbox.crash_run.run --seconds 10 --events 2000 --sabotage no_token

Events are added all the time, a blow falls every second: kill -9 or SIGSTOP of a worker, at a random moment or at the
worst one, or a restart of the database, by crash or in good order. Then everything is left alone until the last event
is done. A seed fixes which blows fall when; what the machine makes of them differs from run to run.
"""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fencehold
from fencehold.model.errors import FenceholdError
from tests.fencehold.runtime.outbox.crash_run.chaos import Blow, Crew, Hand, Tally, blows, worker_command
from tests.fencehold.runtime.outbox.crash_run.database import DATABASES, Database, counts
from tests.fencehold.runtime.outbox.crash_run.referee import Verdict, judge
from tests.fencehold.runtime.outbox.crash_run.sabotage import SABOTAGES
from tests.fencehold.runtime.outbox.crash_run.summary import summary
from tests.fencehold.runtime.outbox.crash_run.worker import MAX_RETRIES, NEVER

TEND_EVERY_S = 0.02
FEED_EVERY_S = 0.05
FEED_MAX = 500
DRAIN_S = 60.0
STOP_S = 15.0
DONE = {"COMPLETED", "DEAD_LETTER"}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    seconds: float = 60.0
    events: int = 20_000
    workers: int = 4
    seed: int = 1
    database: str = "postgres"
    lease_s: float = 2.0
    concurrency: int = 10
    work_ms: tuple[float, float] = (0.0, 5.0)
    fail_part: float = 0.01
    sabotage: str | None = None
    feed_s: float | None = None  # over how long events are added; None: over all of the run
    calm_s: float = 0.0  # after each restart, before the next and before the end

    def replay(self) -> str:
        told = f"--seconds {self.seconds:g} --events {self.events} --workers {self.workers} --seed {self.seed}"
        more = f" --database {self.database}" + (f" --sabotage {self.sabotage}" if self.sabotage else "")
        return f"python -m tests.fencehold.runtime.outbox.crash_run.run {told}{more}"


@dataclass
class Outcome:
    verdict: Verdict
    tally: Tally
    facts: Counter[str]
    complaints: Counter[str]
    pids: tuple[list[int], list[int]]  # of the workers, at the first blow and at the end
    drained_s: float | None


class Deaf:
    def fact(self, event: str, **fields: Any) -> None:
        """The run's own store has nothing to say."""


@dataclass
class Run:
    options: Options
    database: Database
    folder: Path
    say: Say
    pace: Callable[[], float] | None = None  # which part of the events is due by now; None: as the time asks for
    fed: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    began_s: float = 0.0

    def __post_init__(self) -> None:
        rng = random.Random(f"events {self.options.seed}")
        self._ids = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(self.options.events)]
        # An aimed freeze has no blow left to say how long it lasts when another one came first.
        hold_s = self.options.lease_s * 1.5
        self._crew = Crew(self.options.workers, self._start, self.tally, hold_s)

    async def play(self, planned: Sequence[Blow]) -> Outcome:
        try:
            return await self._play(planned)
        finally:
            self._crew.kill_all()

    async def _play(self, planned: Sequence[Blow]) -> Outcome:
        tending = asyncio.create_task(self._tend())
        printing = asyncio.create_task(self._print_progress())
        await self._all_ready()
        before = [hand.pid for hand in self._crew.slots]
        self.began_s = time.monotonic()
        feeding = asyncio.create_task(self._feed())
        await self._strike(planned)
        await feeding
        drained_s = await self._drain()
        await self._all_ready()
        after = [hand.pid for hand in self._crew.slots]
        for task in (tending, printing):
            task.cancel()
        await asyncio.gather(tending, printing, return_exceptions=True)
        self._crew.thaw_all()
        await asyncio.to_thread(self._crew.stop, STOP_S)
        return await asyncio.to_thread(self._judged, (before, after), drained_s)

    async def _all_ready(self) -> None:
        while not all(hand.is_ready for hand in self._crew.slots):  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(TEND_EVERY_S)

    # --- trouble ---

    async def _strike(self, planned: Sequence[Blow]) -> None:
        restart: asyncio.Task[None] | None = None
        for blow in planned:
            await asyncio.sleep(self.began_s + blow.at_s - time.monotonic())
            if blow.kind != "restart":
                self._crew.strike(blow)
                continue
            if restart is not None:
                await restart
            restart = asyncio.create_task(self._restart(blow.crash))
        await asyncio.sleep(self.began_s + self.options.seconds - time.monotonic())
        if restart is not None:
            await restart

    async def _restart(self, crash: bool) -> None:
        down_s = time.time()
        await asyncio.to_thread(self.database.restart, crash)
        self.tally.restarts.append((down_s, time.time()))
        self.tally.crashes += crash
        await asyncio.sleep(self.options.calm_s)

    async def _tend(self) -> None:
        while True:
            self._crew.tend(time.monotonic())
            await asyncio.sleep(TEND_EVERY_S)

    # --- events ---

    async def _feed(self) -> None:
        """As many as are due; a batch without an answer is added again, which must not double it."""
        due = self.pace or self._part_by_time
        async with fencehold.connect(self.database.url, facts=Deaf()) as store:
            outbox = store.outbox(max_retries=MAX_RETRIES)
            while len(self.fed) < len(self._ids):
                batch = self._ids[len(self.fed) : int(due() * len(self._ids))][:FEED_MAX]
                events = [{"event_type": "crash", "payload": {"n": 1}, "tracking_id": one} for one in batch]
                try:
                    await outbox.add_many(events)
                    self.fed += batch
                except FenceholdError:
                    pass
                if len(batch) < FEED_MAX:
                    await asyncio.sleep(FEED_EVERY_S)

    def _part_by_time(self) -> float:
        feed_s = self.options.feed_s if self.options.feed_s is not None else self.options.seconds
        return min(1.0, (time.monotonic() - self.began_s + FEED_EVERY_S) / max(feed_s, FEED_EVERY_S))

    async def _drain(self) -> float | None:
        """Until nothing waits and nothing is held; None when that takes too long."""
        began_s = time.monotonic()
        while time.monotonic() < began_s + DRAIN_S:
            found = await counts(self.database)
            if found is not None and set(found) <= DONE:
                return time.monotonic() - began_s
            await asyncio.sleep(0.2)
        return None

    async def _print_progress(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            found = await counts(self.database)
            state = "the database is down" if found is None else " ".join(f"{k} {v}" for k, v in sorted(found.items()))
            done = self.tally
            self.say(
                f"{time.monotonic() - self.began_s if self.began_s else 0:4.0f} s  added {len(self.fed)}  {state}  |"
                f"  kills {done.kills} stops {done.stops} restarts {len(done.restarts)}"
            )

    # --- workers ---

    def _start(self, number: int) -> Hand:
        o = self.options
        file = self.folder / f"w{number}"
        more = [
            "--lease", f"{o.lease_s}", "--concurrency", f"{o.concurrency}", "--fail-part", f"{o.fail_part}",
            "--work-ms", *map(str, o.work_ms), "--seed", f"{o.seed} {number}",
            *(["--sabotage", o.sabotage] if o.sabotage else []),
        ]  # fmt: skip
        return Hand(f"w{number}", worker_command(self.database.url, f"w{number}", file, *more), file)

    # --- the end ---

    def _judged(self, pids: tuple[list[int], list[int]], drained_s: float | None) -> Outcome:
        marks = [mark for hand in self._crew.all for mark in hand.marks()]
        rows = self.database.rows()
        verdict = judge(self.fed, rows, self.database.changes(), marks)
        finishers = {row.tracking_id: (row.token or "").partition("/")[0] for row in rows}
        for hand in self._crew.all:
            denied = [event for event, reason in hand.lost() if reason == "refused" and finishers[event] == hand.name]
            verdict.numbers["denied"] += len(denied)
        facts = Counter(fact for hand in self._crew.all for fact in hand.facts())
        for death in self.tally.deaths:
            verdict.blame(death)
        for fact in facts:
            if fact.split(" ")[0] in NEVER:
                verdict.blame(f"a worker told {fact}")
        if drained_s is None:
            verdict.blame(f"not drained within {DRAIN_S:g} s")
        complaints = self.database.complaints()
        for complaint in complaints:
            verdict.blame(f"the database said {complaint}")
        return Outcome(verdict, self.tally, facts, complaints, pids, drained_s)


def run(
    options: Options, planned: Sequence[Blow] | None = None, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    """One crash run from an empty database to the referee's verdict; nothing it started is left."""
    folder = Path(tempfile.mkdtemp(prefix="fencehold-crash-"))
    database: Database | None = None
    try:
        database = DATABASES[options.database]()
        if planned is None:
            planned = blows(options.seed, options.seconds, options.workers, options.lease_s, database.restarts)
        return asyncio.run(Run(options, database, folder, say).play(planned))
    finally:
        if database is not None:
            database.close()
        shutil.rmtree(folder, ignore_errors=True)


def options_of(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fencehold.runtime.outbox.crash_run.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(100_000), help="which blows fall when")
    parser.add_argument("--database", choices=sorted(DATABASES), default="postgres")
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES), help="workers that break a rule")
    return Options(**vars(parser.parse_args(arguments)))


def interrupted(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = options_of()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell has it ignored
    signal.signal(signal.SIGTERM, interrupted)
    print(options.replay(), flush=True)
    try:
        outcome = run(options, say=lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print("interrupted: everything that was started has been ended")
        return 130
    print(summary(options.seconds, outcome.verdict, outcome.tally, outcome.facts, outcome.drained_s))
    if outcome.verdict.violations:
        print(f"\n{len(outcome.verdict.violations)} VIOLATIONS\n{outcome.verdict.shown()}\n\nagain: {options.replay()}")
        return 1
    print("every event completed exactly once under its token; none lost, none stuck, every attempt accounted for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
