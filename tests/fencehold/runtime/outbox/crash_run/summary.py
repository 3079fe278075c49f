"""What a crash run did and what it found, in a few lines for people."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from tests.fencehold.runtime.outbox.crash_run.chaos import Tally
from tests.fencehold.runtime.outbox.crash_run.referee import Verdict

WINDOW_S = 2.0
SETTLE_S = 1.0
FACTS_MAX = 12

Restarts = Sequence[tuple[float, float]]  # when it went down, when it was up again


def rate(done_s: Sequence[float], since_s: float, until_s: float) -> float:
    """Completions a second; `done_s` is sorted."""
    return (bisect_left(done_s, until_s) - bisect_left(done_s, since_s)) / (until_s - since_s)


def rates_around(done_s: Sequence[float], restarts: Restarts) -> list[tuple[float, float]]:
    """Of each restart: in the seconds before it went down, and in those after the workers had a second to come back."""
    return [
        (rate(done_s, down_s - WINDOW_S, down_s), rate(done_s, up_s + SETTLE_S, up_s + SETTLE_S + WINDOW_S))
        for down_s, up_s in restarts
    ]


def silences_s(done_s: Sequence[float], restarts: Restarts) -> list[float]:
    """Of each restart: from when the database was up to the first completion, unless the next one came before it."""
    ends_s = [*(down_s for down_s, _ in restarts[1:]), float("inf")]
    firsts = [(up_s, bisect_left(done_s, up_s), end_s) for (_, up_s), end_s in zip(restarts, ends_s, strict=True)]
    return [done_s[n] - up_s for up_s, n, end_s in firsts if n < len(done_s) and done_s[n] < end_s]


def summary(seconds: float, verdict: Verdict, tally: Tally, facts: Counter[str], drained_s: float | None) -> str:
    n = verdict.numbers
    lapsed_s = max((late_s for _, late_s in verdict.recovered), default=0.0)
    crashed = f"{len(tally.restarts)} restarts of the database ({tally.crashes} by crash)"
    told = ", ".join(f"{count} x {fact.strip()[:100]}" for fact, count in facts.most_common(FACTS_MAX))
    ended = f"{n['reaped']} recovered by the reaper, {n['failed']} failed, {n['released']} given back"
    lines = {
        "blows": f"{tally.kills} kills, {tally.stops} stops, {crashed} in {seconds:g} s",
        "events": f"{n['events']}: {n['completed']} completed, {n['claims']} claims, {n['starts']} starts",
        "attempts": f"{ended}; at most {n['most claims']} claims of one event",
        "too late": f"{n['stale starts']} starts and {n['stale ends']} ends of handlers after their claim was over",
        "longest": f"{verdict.longest_s:.1f} s from added to completed, {lapsed_s:.1f} s lapsed and not yet recovered",
        "drained": "NEVER" if drained_s is None else f"{drained_s:.1f} s after the last blow",
        "denied": f"{n['denied']} events completed by a worker that says it lost them" if n["denied"] else "",
        "rate": _rates(verdict.completed_s, tally.restarts),
        "told": told,
    }
    return "\n" + "\n".join(f"{name:10} {text}" for name, text in lines.items() if text)


def _rates(done_s: Sequence[float], restarts: Restarts) -> str:
    if not restarts:
        return ""
    around = rates_around(done_s, restarts)
    before, after = (sum(side) / len(around) for side in zip(*around, strict=True))
    silence_s = max(silences_s(done_s, restarts), default=0.0)
    went_on = f"first completion at the latest {silence_s:.2f} s after the database was up"
    return f"{before:.0f} events/s before restarts, {after:.0f} after; {went_on}"
