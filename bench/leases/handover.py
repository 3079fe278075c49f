"""Hand-over after a clean release: two processes alternate, with default settings, beside a 1 s poller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from bench.children import Child, children
from bench.report import Finding, Tell, quantile
from bench.server import Bench
from bench.sizes import Sizes

CANDIDATE, POLLER = "bench.leases.candidate", "bench.leases.poller"
P50_MS_MAX, P99_MS_MAX = 10.0, 60.0
SETTLE_S = 0.03


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    with children() as start:
        pair = [start(CANDIDATE, bench.dsn_of(f"handover-{n}"), "handover") for n in "ab"]
        ours = alternate(pair, sizes.handovers, lambda i: tell(f"hand-over {i} of {sizes.handovers}"), SETTLE_S)
        pair = [start(POLLER, bench.dsn_of(f"poller-{n}"), "polled", n) for n in "ab"]
        polled = alternate(pair, sizes.polls, lambda i: tell(f"1 s poller {i} of {sizes.polls}"), 1.0)
    from_call = [called for called, _ in ours]
    detail = {"rounds": len(ours), "from": "the call of shutdown()", "max_ms": max(from_call)}
    after = [done for _, done in ours]
    poll_p50 = quantile([called for called, _ in polled], 0.5)
    p50 = quantile(from_call, 0.5)
    return [
        Finding("hand-over after a clean release, p50", p50, "ms", P50_MS_MAX, detail=detail),
        Finding("hand-over after a clean release, p99", quantile(from_call, 0.99), "ms", P99_MS_MAX, detail=detail),
        Finding("  counted from when the releaser knew, p50", quantile(after, 0.5), "ms"),
        Finding("  counted from when the releaser knew, p99", quantile(after, 0.99), "ms"),
        Finding("  a 1 s poller instead, p50", poll_p50, "ms", detail={"rounds": len(polled)}),
        Finding("  a 1 s poller instead, times slower at p50", poll_p50 / p50, "x"),
    ]


def alternate(
    pair: list[Child], rounds: int, tell: Callable[[int], None], settle_s: float
) -> list[tuple[float, float]]:
    """Milliseconds from the call of release, and from its return, to the other's valid term."""
    for child in pair:
        child.wait_for("ready")
    leader, follower = pair
    leader.say("follow")
    leader.wait_for("leading")
    spans = []
    for index in range(rounds):
        if index % 10 == 0:
            tell(index)
        follower.say("follow")
        follower.wait_for("following")
        time.sleep(settle_s * random.uniform(0.5, 1.5))
        leader.say("release")
        released, leading = leader.wait_for("released"), follower.wait_for("leading")
        spans.append(tuple(1000 * (leading["at_s"] - released[since]) for since in ("called_s", "done_s")))
        leader, follower = follower, leader
    return spans
