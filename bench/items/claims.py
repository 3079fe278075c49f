"""How many items eight claimers lease in a second, and whether any was leased twice."""

from __future__ import annotations

import statistics

from bench.items.ground import BATCH, CLAIMERS, Drain, drain
from bench.report import Finding, Tell
from bench.server import Bench
from bench.sizes import Sizes

PER_S_MIN = 10_000
RATIO_MIN = 0.7


def measure(bench: Bench, sizes: Sizes, tell: Tell) -> list[Finding]:
    rounds: list[dict[str, Drain]] = []
    for index in range(sizes.items.rounds):
        tell(f"item-claims: round {index + 1} of {sizes.items.rounds}")
        order = ("ours", "bare") if index % 2 else ("bare", "ours")  # who comes first changes from round to round
        rounds.append({who: drain(bench, who, sizes.items.states) for who in order})
    return findings(rounds)


def findings(rounds: list[dict[str, Drain]]) -> list[Finding]:
    """One of the two promises is enough: the rate itself, or the ratio where the machine cannot do more."""
    ratios = [one["ours"].per_s / one["bare"].per_s for one in rounds]
    per_s = {who: statistics.median(one[who].per_s for one in rounds) for who in ("ours", "bare")}
    ratio = statistics.median(ratios)
    detail = {"rounds": len(rounds), "items": rounds[0]["ours"].items, "ratios": ratios}
    name = f"next_for_state, {CLAIMERS} claimers, batches of {BATCH}: items leased"
    is_by_rate = per_s["ours"] >= PER_S_MIN
    doubles = sum(one["ours"].double_grants for one in rounds)
    return [
        Finding(name, per_s["ours"], "/s", PER_S_MIN if is_by_rate else None, at_least=True, detail=detail),
        Finding("  against bare psycopg", ratio, "x", None if is_by_rate else RATIO_MIN, at_least=True),
        Finding("  bare psycopg, one statement a batch", per_s["bare"], "/s"),
        Finding("  leased twice", doubles, "", 0),
    ]
