"""A worker with nothing to do: how many statements does it send, heartbeat and reaper included?"""

from __future__ import annotations

import time
from collections import Counter

from bench.outbox.drains import workers
from bench.outbox.ground import Ground
from bench.outbox.ours import POLL_EVERY_S
from bench.outbox.systems import OURS
from bench.report import Finding

SETTLE_S = 4.0


def measure(ground: Ground) -> list[Finding]:
    if not ground.bench.counts_statements:
        return []
    during_s = ground.sizes.idle_s
    whole, plain = "outbox-idle", "outbox-idle-plain"
    with (
        ground.databases.empty(OURS) as bench,
        workers(OURS, bench.dsn_of(whole, logged=True), "lat") as (reaping,),
    ):
        ground.tell(f"idle worker: {2 * SETTLE_S + during_s:.0f} s")
        time.sleep(SETTLE_S)  # the second worker refuses to start where no reaper has run
        with workers(OURS, bench.dsn_of(plain, logged=True), "lat", BENCH_NO_REAPER="1") as (other,):
            time.sleep(SETTLE_S)
            mark = bench.mark()
            time.sleep(during_s)
            counts = Counter(statement.who for statement in bench.statements(mark))
            for worker in (reaping, other):
                worker.check()
                worker.stop()
    return [
        finding("idle worker: statements per poll interval", counts[plain], during_s, 1),
        finding("  of the one that is also the reaper", counts[whole], during_s, None),
    ]


def finding(name: str, count: int, during_s: float, limit: float | None) -> Finding:
    """One less than were counted: n intervals have n + 1 ends."""
    per_poll = max(0, count - 1) * POLL_EVERY_S / during_s
    return Finding(name, per_poll, "", limit, detail={"seconds": during_s, "statements": count})
