"""Hand-over of the advisory lock: two processes alternate, from the call of step_down() to the other's leadership."""

from __future__ import annotations

import time

from bench.children import children
from bench.report import Finding, Tell, quantile
from bench.server import Bench
from bench.sizes import Sizes
from fencehold.runtime.election.election import HEAD_START_S

CANDIDATE = "bench.locks.candidate"
P50_MS_MAX = 10.0
ROUNDS_MAX = 50


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    took = []
    with children() as start:
        leader, follower = (start(CANDIDATE, bench.dsn_of(f"lock-{name}")) for name in "ab")
        leader.wait_for("leading")
        follower.wait_for("ready")
        rounds = min(ROUNDS_MAX, sizes.handovers)
        for index in range(rounds):
            tell(f"lock hand-over {index} of {rounds}")
            time.sleep(HEAD_START_S + 0.05)  # whoever stepped down last gives the others that long before it listens
            leader.say("step down")
            began_s = leader.wait_for("stepping_down")["at_s"]
            took.append(1000 * (follower.wait_for("leading")["at_s"] - began_s))
            leader, follower = follower, leader
    return [
        Finding("pgleaderlock: hand-over after step_down, p50", quantile(took, 0.5), "ms", P50_MS_MAX),
        Finding("  p99", quantile(took, 0.99), "ms"),
    ]
