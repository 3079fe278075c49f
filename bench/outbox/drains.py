"""One drain: workers start on a loaded database and finish everything in it."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from bench.children import ROOT
from bench.outbox.databases import Databases
from bench.outbox.peers.hits import Hits
from bench.outbox.systems import System
from bench.server import Bench

STOP_LIMIT_S = 20.0
STUCK_LIMIT_S = 60.0
LOOK_EVERY_S = 0.003


@dataclass(frozen=True)
class Drain:
    """Counted from the first handler's start until the database says that nothing is unfinished."""

    events: int
    took_s: float
    hits: int
    wal_bytes: int
    commits: int
    busy_cores: float

    @property
    def per_s(self) -> float:
        return self.events / self.took_s

    @property
    def wal_bytes_per_event(self) -> float:
        return self.wal_bytes / self.events

    @property
    def commits_per_event(self) -> float:
        return self.commits / self.events


class Worker:
    """A worker process that counts its handlers' starts in a file."""

    def __init__(self, system: System, dsn: str, mode: str, folder: Path, **environment: str) -> None:
        self.path = folder / f"hits-{time.monotonic_ns()}"
        self.hits = Hits.new(str(self.path))
        self._said = self.path.with_suffix(".stderr")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*system.command, "worker", mode], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said,
                env=system.environ(dsn, BENCH_COUNTER=str(self.path), **environment),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def check(self) -> None:
        """RuntimeError, with what it said last, when it failed; having nothing left to do is no failure."""
        if self._process.poll():
            raise RuntimeError(f"the worker ended with {self._process.returncode}:\n{self._said.read_text()[-2000:]}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def workers(system: System, dsn: str, mode: str, count: int = 1, **environment: str) -> Iterator[list[Worker]]:
    """None outlives the block."""
    with tempfile.TemporaryDirectory(prefix="fencehold-bench-") as folder:
        started = [Worker(system, dsn, mode, Path(folder), **environment) for _ in range(count)]
        try:
            yield started
        finally:
            for worker in started:
                worker.kill()


def drain(
    databases: Databases, system: System, bench: Bench, events: int, mode: str, count: int = 1, **environment: str
) -> Drain:
    """By `count` worker processes; `bench` holds this many pending events."""
    query = databases.unfinished(system)
    wal_bytes, commits = databases.wal_bytes(), databases.commits(bench)
    with (
        psycopg.connect(bench.dsn, autocommit=True) as reader,
        workers(system, bench.dsn, mode, count, **environment) as started,
    ):
        wait_until(lambda: total(started) > 0, started)
        idle_s, began_s = psutil.cpu_times().idle, time.monotonic()
        wait_until(lambda: total(started) >= events, started)
        looks = wait_until(lambda: unfinished(reader, query) == 0, started)
        ended_s = time.time()
        wal_bytes = databases.wal_bytes() - wal_bytes
        busy_cores = (psutil.cpu_count() or 1) - (psutil.cpu_times().idle - idle_s) / (time.monotonic() - began_s)
        for worker in started:
            worker.stop()
        first_s = min(worker.hits.read()[1] or ended_s for worker in started)
        hits = total(started)
    wait_until(lambda: databases.sessions(bench) == 0, [])
    commits = databases.commits(bench) - commits - looks
    return Drain(events, ended_s - first_s, hits, wal_bytes, commits, busy_cores)


def drain_copy(
    databases: Databases, system: System, source: Bench, events: int, mode: str, count: int = 1, **environment: str
) -> Drain:
    """The same on a copy, so that it can be done again."""
    with databases.copy(source) as bench:
        return drain(databases, system, bench, events, mode, count, **environment)


def wait_until(reached: Callable[[], bool], started: list[Worker]) -> int:
    """How many looks it took; TimeoutError when no handler was started for long."""
    looks, hits, since_s = 1, 0, time.monotonic()
    while not reached():
        for worker in started:
            worker.check()
        if (now := total(started)) != hits:
            hits, since_s = now, time.monotonic()
        elif time.monotonic() > since_s + STUCK_LIMIT_S:
            raise TimeoutError(f"no handler was started for {STUCK_LIMIT_S:g} s, {hits} before")
        time.sleep(LOOK_EVERY_S)
        looks += 1
    return looks


def total(started: list[Worker]) -> int:
    return sum(worker.hits.read()[0] for worker in started)


def unfinished(reader: psycopg.Connection[tuple[int]], query: str) -> int:
    row = reader.execute(query.encode()).fetchone()
    assert row is not None, "a count"
    return row[0]
