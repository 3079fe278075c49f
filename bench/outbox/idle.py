"""A worker with nothing to do: how many statements does it send, heartbeat and reaper included?"""

from __future__ import annotations

import time

from bench.outbox.drains import workers
from bench.outbox.ground import Ground
from bench.outbox.ours import POLL_EVERY_S
from bench.outbox.systems import OURS
from bench.report import Finding

WHO = "outbox-idle"
SETTLE_S = 4.0


def measure(ground: Ground) -> list[Finding]:
    if not ground.bench.counts_statements:
        return []
    during_s = ground.sizes.idle_s
    with ground.databases.empty(OURS) as bench, workers(OURS, bench.dsn_of(WHO, logged=True), "lat") as (worker,):
        ground.tell(f"idle worker: {SETTLE_S + during_s:.0f} s")
        time.sleep(SETTLE_S)
        mark = bench.mark()
        time.sleep(during_s)
        worker.check()
        count = sum(1 for statement in bench.statements(mark) if statement.who == WHO)
        worker.stop()
    per_poll = count * POLL_EVERY_S / during_s
    detail = {"seconds": during_s, "statements": count}
    return [Finding(f"idle worker: statements per poll interval ({POLL_EVERY_S} s)", per_poll, "", 1, detail=detail)]
