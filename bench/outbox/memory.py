"""The memory of one worker process while it handles very many events."""

from __future__ import annotations

import time

import psutil

from bench.outbox.databases import run_verb
from bench.outbox.drains import workers
from bench.outbox.ground import Ground
from bench.outbox.systems import OURS
from bench.report import Finding

GROWTH_MB_MAX = 10.0
WARM_PART = 0.05
IN_FLIGHT = "100"
LOOK_EVERY_S = 0.25


def measure(ground: Ground) -> list[Finding]:
    events = ground.sizes.memory_events
    with ground.databases.empty(OURS) as bench:
        ground.tell(f"memory: {events} events are being added")
        run_verb(OURS, bench.dsn, "enqueue", str(events))
        ground.tell(f"memory: {events} events are being handled")
        with workers(OURS, bench.dsn, "best", BENCH_BATCH=IN_FLIGHT) as (worker,):
            process, sizes_mb = psutil.Process(worker.pid), list[float]()
            while (done := worker.hits.read()[0]) < events:
                worker.check()
                if done >= events * WARM_PART:
                    sizes_mb.append(process.memory_info().rss / 1e6)
                time.sleep(LOOK_EVERY_S)
            worker.stop()
    detail = {"events": events, "first_mb": sizes_mb[0], "last_mb": sizes_mb[-1], "looks": len(sizes_mb)}
    name = f"memory of a worker over {events} events, largest change"
    change_mb = max(abs(size - sizes_mb[0]) for size in sizes_mb)
    return [
        Finding(name, change_mb, "MB", GROWTH_MB_MAX, detail=detail),
        Finding("  at the end", sizes_mb[-1], "MB"),
    ]
