"""Crash takeover: the leader is killed with -9; how long after the row's expiry does a follower lead?"""

from __future__ import annotations

import random
import time

import psycopg

from bench.children import children
from bench.report import Finding, Tell, quantile
from bench.server import Bench
from bench.sizes import Sizes
from bench.telling import now_s

CANDIDATE = "bench.leases.candidate"
LEASE = "1s"
LATE_MS_MAX = 150.0
CLOCK_READS = 20
NAME = "takeover"


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    late = []
    with children() as start, psycopg.connect(bench.dsn_of("takeover-reader"), autocommit=True) as reader:
        leader = start(CANDIDATE, bench.dsn_of("takeover"), NAME, LEASE)
        leader.wait_for("ready")
        leader.say("follow")
        leader.wait_for("leading")
        for index in range(sizes.takeovers):
            tell(f"takeover {index} of {sizes.takeovers}")
            follower = start(CANDIDATE, bench.dsn_of("takeover"), NAME, LEASE)
            follower.wait_for("ready")
            follower.say("follow")
            follower.wait_for("following")
            time.sleep(random.uniform(0.2, 1.2))
            leader.kill()
            expiry_s = expires_at_boot_s(reader)
            late.append(1000 * (follower.wait_for("leading")["at_s"] - expiry_s))
            leader = follower
    detail = {"rounds": len(late), "lease": LEASE, "p50_ms": quantile(late, 0.5), "min_ms": min(late)}
    return [
        Finding("crash takeover after the lease's expiry, max", max(late), "ms", LATE_MS_MAX, detail=detail),
        Finding("  p50", quantile(late, 0.5), "ms"),
    ]


def expires_at_boot_s(reader: psycopg.Connection[tuple[float, ...]]) -> float:
    """The row's expires_at on this machine's clock, by the fastest of several reads of the store's."""
    reads = []
    for _ in range(CLOCK_READS):
        sent_s = now_s()
        row = reader.execute(
            "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM fencehold_leases"
            " WHERE lease_name = %s",
            [NAME],
        ).fetchone()
        assert row is not None, "the killed leader left its row"
        took_s = now_s() - sent_s
        reads.append((took_s, sent_s + took_s / 2 + row[0]))
    return min(reads)[1]
