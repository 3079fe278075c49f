"""A thousand leases led by one process: statements in a renewal round, as the server counts, and how long it takes."""

from __future__ import annotations

import statistics
import time

from bench.children import children
from bench.report import Finding, Tell
from bench.server import Bench, Statement
from bench.sizes import Sizes

CROWD = "bench.leases.crowd"
STATEMENTS_MAX = 3
RENEW_EVERY_S = 10.0  # the default for a lease of 30 s
WHO = "many"


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    with children() as start:
        crowd = start(CROWD, bench.dsn_of(WHO, logged=True), str(sizes.leases))
        crowd.wait_for("ready")
        tell(f"many: {sizes.leases} leases are being acquired")
        crowd.say("lead")
        crowd.wait_for("leading")
        time.sleep(RENEW_EVERY_S)  # the first renewals still follow the start
        mark = bench.mark()
        crowd.say("count")
        for index in range(sizes.renewal_rounds):
            tell(f"many: renewal round {index} of {sizes.renewal_rounds}")
            time.sleep(RENEW_EVERY_S)
        crowd.say("tell")
        bursts = crowd.wait_for("renewed")["bursts"]
        statements = [s for s in bench.statements(mark) if s.who == WHO] if bench.counts_statements else []
    return findings(sizes, bursts, statements)


def findings(sizes: Sizes, bursts: list[tuple[float, float, int]], statements: list[Statement]) -> list[Finding]:
    name = f"{sizes.leases} leases in one process"
    renewed = sum(count for _, _, count in bursts)
    detail = {"rounds": sizes.renewal_rounds, "renewed": renewed, "bursts": [count for _, _, count in bursts]}
    found = []
    if statements:
        per_round = len(statements) / sizes.renewal_rounds
        found.append(Finding(f"{name}: statements per renewal round", per_round, "", STATEMENTS_MAX, detail=detail))
        found.append(Finding("  a renewal round takes", round_ms(bursts, statements, sizes), "ms"))
        in_server = sum(s.took_ms for s in statements) / sizes.renewal_rounds
        found.append(Finding("  of which in the server", in_server, "ms"))
    found.append(Finding("  renewals in a round", renewed / sizes.renewal_rounds))
    return found


def round_ms(bursts: list[tuple[float, float, int]], statements: list[Statement], sizes: Sizes) -> float:
    """From when the server began a statement to when the last of its leases was extended in the process."""
    spans = []
    for first_s, last_s, _ in bursts:
        before = [s for s in statements if s.ended_at_s <= first_s + 0.005]
        if before:
            spans.append(1000 * (last_s - before[-1].ended_at_s) + before[-1].took_ms)
    return statistics.fmean(spans) * len(bursts) / sizes.renewal_rounds if spans else 0.0
