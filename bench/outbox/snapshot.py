"""A reader keeps one snapshot open while events come and go: nothing finished since can be cleaned up.

Bursts are drained before and at the end, by the same worker: it and the load are frozen while a burst is added.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.children import ROOT
from bench.outbox.databases import run_verb
from bench.outbox.drains import Worker, unfinished, wait_until, workers
from bench.outbox.ground import Ground
from bench.outbox.ours import UNFINISHED
from bench.outbox.systems import OURS
from bench.report import Finding
from bench.server import Bench

RATIO_MIN = 0.7
LOAD_EACH_S = 0.05
LOAD_PER_S = 2000
BURST = 10_000
BURSTS = 3
SETTLE_S = 2.0


def measure(ground: Ground) -> list[Finding]:
    with (
        ground.databases.empty(OURS) as bench,
        workers(OURS, bench.dsn, "c10") as (worker,),
        psycopg.connect(bench.dsn) as reader,
    ):
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        ground.tell("snapshot: bursts before")
        burst(bench, worker)  # to be warm
        before = [burst(bench, worker) for _ in range(BURSTS)]
        held_since_s = time.monotonic()
        unfinished(reader, UNFINISHED)
        with load(bench):
            while (left_s := held_since_s + ground.sizes.snapshot_s - time.monotonic()) > 0:
                ground.tell(f"snapshot: {left_s:.0f} s left")
                time.sleep(min(10.0, left_s))
        backlog = settled(bench)
        ground.tell("snapshot: bursts at the end")
        after = [burst(bench, worker) for _ in range(BURSTS)]
        held_s = time.monotonic() - held_since_s
        worker.stop()
    name = f"a snapshot open for {held_s:.0f} s under {LOAD_PER_S} events/s: drain rate at the end against the start"
    ratio = statistics.median(after) / statistics.median(before)
    return [
        Finding(name, ratio, "x", RATIO_MIN, at_least=True, detail={"before": before, "after": after}),
        Finding("  at the start", statistics.median(before), "/s"),
        Finding("  at the end", statistics.median(after), "/s"),
        Finding("  unfinished when the load ended", backlog),
    ]


def burst(bench: Bench, worker: Worker) -> float:
    """Events per second, from the first handler of the burst to its last."""
    worker.signal(signal.SIGSTOP)
    try:
        before = worker.hits.read()[0]
        run_verb(OURS, bench.dsn, "enqueue", str(BURST))
    finally:
        worker.signal(signal.SIGCONT)
    wait_until(lambda: worker.hits.read()[0] > before, [worker])
    first, first_s = worker.hits.read()[0], time.time()
    wait_until(lambda: worker.hits.read()[0] >= before + BURST, [worker])
    count, _, last_s = worker.hits.read()
    time.sleep(0.2)
    return (count - first) / (last_s - first_s)


@contextmanager
def load(bench: Bench) -> Iterator[None]:
    each = str(round(LOAD_PER_S * LOAD_EACH_S))
    process = subprocess.Popen([*OURS.command, "load", each, str(LOAD_EACH_S)], cwd=ROOT, env=OURS.environ(bench.dsn))
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(SETTLE_S * 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def settled(bench: Bench) -> int:
    """How much was unfinished when the load ended; returns once the worker has caught up."""
    with psycopg.connect(bench.dsn, autocommit=True) as reader:
        backlog = unfinished(reader, UNFINISHED)
        time.sleep(SETTLE_S)
        wait_until(lambda: unfinished(reader, UNFINISHED) == 0, [])
    return backlog
