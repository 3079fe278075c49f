"""An idle follower: how many connections and how many statements, for 1, 10 and 100 elections in one process."""

from __future__ import annotations

import time
from collections import Counter

import psycopg

from bench.children import children
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

CANDIDATE = "bench.leases.candidate"
ELECTIONS = (1, 10, 100)
STATEMENTS_PER_S_MAX = 0.1
SETTLE_S = 3.0
LOOK_EVERY_S = 5.0


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    with children() as start:
        leader = start(CANDIDATE, bench.dsn_of("idle-leader"), "idle", "30s", str(max(ELECTIONS)))
        leader.wait_for("ready")
        leader.say("follow")
        leader.wait_for("leading")
        for count in ELECTIONS:
            dsn = bench.dsn_of(follower(count), logged=True)
            child = start(CANDIDATE, dsn, "idle", "30s", str(count))
            child.wait_for("ready")
            child.say("follow")
            child.wait_for("following")
        time.sleep(SETTLE_S)
        mark, connections = bench.mark(), watch_connections(bench, sizes.idle_s, tell)
        return findings(bench, mark, connections, sizes.idle_s)


def follower(count: int) -> str:
    return f"idle-follower-{count}"


def watch_connections(bench: Bench, during_s: float, tell: Tell) -> dict[int, int]:
    """The most connections each follower had at any look."""
    most = dict.fromkeys(ELECTIONS, 0)
    end_s = time.monotonic() + during_s
    with psycopg.connect(bench.dsn_of("idle-reader"), autocommit=True) as reader:
        while (left_s := end_s - time.monotonic()) > 0:
            tell(f"idle followers: {left_s:.0f} s left")
            for count in ELECTIONS:
                row = reader.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [follower(count)]
                ).fetchone()
                most[count] = max(most[count], row[0] if row else 0)
            time.sleep(min(LOOK_EVERY_S, left_s))
    return most


def findings(bench: Bench, mark: int, connections: dict[int, int], during_s: float) -> list[Finding]:
    found = [
        Finding(f"idle follower of {count}: connections", most, "", 1, detail={"seconds": during_s})
        for count, most in connections.items()
    ]
    if not bench.counts_statements:
        return found
    counts = Counter(statement.who for statement in bench.statements(mark))
    for count in ELECTIONS:
        mine = counts[follower(count)]
        detail = {"seconds": during_s, "statements": mine}
        name = f"idle follower of {count}: statements"
        found.append(Finding(name, mine / during_s, "/s", STATEMENTS_PER_S_MAX, detail=detail))
    return found
